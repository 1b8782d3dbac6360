package iptables

// MarkChain is a chain in table nat that marks packets for masquerading. Rules of
// other programs, such as network plugins, jump to it.
const MarkChain = "KUBE-MARK-MASQ"
