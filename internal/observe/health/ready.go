package health

// notReady returns why neither new connections should come nor a rolling update go on, "" if
// they may: this process has programmed everything once, or found it in the kernel, and the
// kernel follows. A proxy that was ready stays so while the API server is away, which is no
// fault of this version, and on a node that leaves.
func (p *Proxy) notReady() string {
	v, s := p.Verdict(), p.Status()
	if v.Word.Ready() && !s.Behind(p.Clock.Now()) {
		return ""
	}
	return v.Why
}
