// Package vm runs test binaries on other kernels than the machine's own: those
// that clusters run on are years apart, and each has its own nf_tables and
// ip_tables.
//
// A kernel comes from a package of Debian, taken from the apt sources of the
// machine, and boots in qemu with an initramfs that is made on the spot: the
// kernel's modules, busybox, tools of this machine like nft, iptables and ipvsadm, and the
// program. The kernel of Debian 13 gets nft and both variants of iptables of
// Debian 13, with the libraries they need. The program runs as root, its output
// appears here as it is written, and its exit code comes back. Modules load as
// they do on a real node, when the kernel asks for them. A kernel that warns or
// oopses meanwhile stops the guest, and that is a failure too.
//
// The tests run scenarios of package lab with the real binary in every mode, and the kernel
// tests of the dataplanes. IPVS is to be found on these kernels only. The scripts are
// those in testdata here: an emulated processor makes a few hundred connections a second,
// so they say as much as possible with few. Each kernel boots once, with what it alone can
// show; if everything is tested, all programs run on all kernels. In guests the variable
// testkit.GuestVariable is set, so that tests can leave themselves out.
//
// Packages and what is made of them are kept in a directory that may be deleted at
// any time: the one that SLUICE_VM_CACHE names, or else sluice-vm in the user's
// cache directory. Entries carry the version of the package, so that a newer one
// takes effect by itself, and processes that run side by side share them.
//
// SLUICE_VM_KERNELS names the kernel packages to test on, separated by commas,
// instead of DefaultKernels. linux-image-cloud-amd64/trixie-backports is the newest
// kernel that Debian has.
//
// Only amd64 is known here: kernels, binaries and qemu are all of that kind.
package vm
