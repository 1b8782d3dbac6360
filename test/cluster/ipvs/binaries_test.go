package ipvs

// The names of the binaries in the directory that a guest runs the tests in.
const (
	ownBinary      = "kube-proxy"
	upstreamBinary = "upstream"
)
