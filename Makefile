# Sluice. `make` builds bin/kube-proxy; `make help` lists the rest.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X sluice/internal/base/release.version=$(VERSION)
GO      ?= go

# Binaries are static, and tests are compiled as binaries are, so that all share what is in Go's cache.
export CGO_ENABLED = 0

# Tests that never end are stopped by this.
TEST_TIMEOUT ?= 40m
# Arguments for the test binaries, e.g. TEST_ARGS='-run TestScenarios -v'.
TEST_ARGS ?=

.PHONY: build
build: ## Build the static binary bin/kube-proxy.
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/kube-proxy ./cmd/kube-proxy

.PHONY: demo
demo: root tools build ## Show the proxy at work in a lab of network namespaces; KEEP=1 lets it stay, with its page (needs root).
	$(GO) run ./test/demo -proxy bin/kube-proxy -manifests examples $(if $(KEEP),-keep)

# Which lanes of the tests to run; all of them if empty. go doc ./test/lanes describes them.
LANES  ?=
RUN    := $(GO) run ./test/lanes -timeout $(TEST_TIMEOUT) -args '$(TEST_ARGS)'

.PHONY: quick
quick: root tools ## Find most faults in a few minutes: lint, unit tests, packets in nftables mode (needs root).
	$(RUN) quick $(LANES)

.PHONY: test
test: root tools ## Check the source and run all tests that must pass before a change lands (needs root).
	$(RUN) test $(LANES)

.PHONY: full
full: root tools ## Run everything there is: all variants and kernels, races, searches, soak. Takes hours (needs root).
	$(RUN) full

.PHONY: fuzz
fuzz: TIME = 1m
fuzz: root tools ## Try each fuzz target for TIME (needs root).
	$(RUN) -fuzztime $(TIME) fuzz

.PHONY: vm
vm: root tools ## Run the tests on other kernels alone, in virtual machines (needs root).
	SLUICE_TESTS=full $(GO) test -count=1 -v -timeout $(TEST_TIMEOUT) $(TEST_ARGS) ./test/vm

# The release of Kubernetes whose API server the tests run against, such as 1.31; by default
# the one in test/cluster/go.mod.
KUBERNETES ?=

.PHONY: cluster
cluster: root tools ## Run the tests against a real API server alone, of the release KUBERNETES (needs root).
	cd test/cluster && SLUICE_KUBERNETES=$(KUBERNETES) $(GO) run ./prepare
	cd test/cluster && SLUICE_KUBERNETES=$(KUBERNETES) $(GO) test -count=1 -timeout $(TEST_TIMEOUT) $(TEST_ARGS) .

# How many random clusters to compare with upstream in each mode, from which seed on,
# and more arguments, such as OUTCOMES_ARGS='-leave-out affinity'.
SEEDS         ?= 50
SEED          ?= $(shell date +%s)
OUTCOMES_ARGS ?=

.PHONY: outcomes
outcomes: root tools ## Compare what becomes of packets with upstream's kube-proxy, in SEEDS random clusters (needs root).
	cd test/cluster && $(GO) run ./prepare
	cd test/cluster && $(GO) test -count=1 -v -timeout 24h -run '^TestSameOutcomeAsUpstream$$' . -args -seed $(SEED) -seeds $(SEEDS) $(OUTCOMES_ARGS)

# The kube-proxy to compare speed and memory with, by default upstream's, which is built,
# and more arguments, such as COMPARE_ARGS='-services 1000 -modes nftables'.
UPSTREAM     ?=
COMPARE_ARGS ?=

.PHONY: compare
compare: root tools build ## Compare speed and memory with the kube-proxy UPSTREAM (needs root).
	cd test/cluster && $(GO) run ./compare -ours $(CURDIR)/bin/kube-proxy -other '$(abspath $(UPSTREAM))' $(COMPARE_ARGS)

# How many nodes follow one API server, and more arguments, such as FLEET_ARGS='-kubemark' or
# FLEET_ARGS='-crowd 500'.
N          ?= 20,50,100
FLEET_ARGS ?=

.PHONY: fleet
fleet: root tools build ## Measure what N nodes cost a real API server, and extrapolate (needs root).
	cd test/cluster && $(GO) run ./fleet -nodes '$(N)' -ours $(CURDIR)/bin/kube-proxy $(FLEET_ARGS)

# How long each of the tests disrupts the proxy, which of them to run, and more arguments, such
# as SOAK_ARGS='-mode nftables -only tampering'.
TIME       ?= 10m
SOAK_TESTS ?= .
SOAK_ARGS  ?=

.PHONY: windows-lab
windows-lab: root tools ## Run kube-proxy.exe in wine alone, against a fake of Windows' networking service (needs root).
	$(GO) test -count=1 -v -timeout $(TEST_TIMEOUT) $(TEST_ARGS) ./test/windows

.PHONY: windows-figures
windows-figures: root tools ## Measure calls and seconds for 1,000 Services in wine, beside upstream's kube-proxy.exe (needs root).
	cd test/cluster && $(GO) test -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestSameLoadBalancersAsUpstream$$/^speed$$' . -args -windows-services 1000

.PHONY: soak
soak: root tools ## Hold the proxy under traffic and disrupt it in every way, for TIME (needs root).
	$(GO) test -count=1 -v -timeout 0 -run '$(SOAK_TESTS)' ./test/soak -args -seed $(SEED) -time $(TIME) $(SOAK_ARGS)

.PHONY: bench
bench: root tools ## Measure speed and memory (needs root).
	$(GO) run ./test/bench
	$(GO) run ./test/bench/conntrack
	$(GO) run ./test/bench/scrape

.PHONY: figures
figures: root tools build ## Measure all that docs quote and that has a bar (needs root, a quiet machine and hours).
	$(MAKE) bench
	$(MAKE) compare
	$(MAKE) compare COMPARE_ARGS='-services 1000 -only-connections -modes nftables'
	$(MAKE) fleet FLEET_ARGS='-memory 3 -services 10000 -endpoints 2'
	$(MAKE) fleet FLEET_ARGS='-memory 3 -services 5000 -endpoints 50'
	$(MAKE) fleet N=20,50,100
	$(MAKE) windows-figures

.PHONY: pictures
pictures: ## Renew the screenshots of the page in docs.
	$(GO) test -count=1 ./internal/answer/web -run '^TestPicturesAreUpToDate$$' -args -update

.PHONY: lint
lint: ## Check the format of the source and what vet and staticcheck find.
	$(RUN) lint

# Other systems that the program is built for, with what it can do there.
SYSTEMS := windows/amd64 darwin/amd64 darwin/arm64
# What an image and a release are made for.
PLATFORMS := linux/amd64 linux/arm64
# The time of all files in them: that of the commit, so that two builds are the same.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
PACK = cd release && $(GO) run . -version $(VERSION) -time $(SOURCE_DATE_EPOCH) -out ../dist \
	$(foreach platform,$(PLATFORMS),-binary $(platform)=../bin/$(subst /,-,$(platform))/kube-proxy)

.PHONY: image
image: $(PLATFORMS) ## Build the image for amd64 and arm64, as archives in dist. Needs no container engine.
	$(PACK)

# The plugin runs where people work.
PLUGINS := $(addprefix plugin/,$(PLATFORMS) $(SYSTEMS))

.PHONY: release
release: $(PLATFORMS) windows/amd64 $(PLUGINS) ## Build static binaries, image, Helm chart, kubectl plugin, SBOMs and checksums, in dist.
	$(PACK) -chart ../deploy/chart -binary windows/amd64=../bin/windows-amd64/kube-proxy.exe \
		$(foreach p,$(PLUGINS),-plugin $(p:plugin/%=%)=../bin/$(subst /,-,$(p))/kubectl-sluice$(if $(findstring windows,$(p)),.exe))

.PHONY: plugin $(PLUGINS)
plugin: ## Build the plugin bin/kubectl-sluice for kubectl.
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/kubectl-sluice
$(PLUGINS):
	GOOS=$(word 2,$(subst /, ,$@)) GOARCH=$(@F) $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/$(subst /,-,$@)/ ./cmd/kubectl-sluice

.PHONY: systems
systems: $(SYSTEMS) ## Build for other systems, to bin.
.PHONY: $(SYSTEMS) $(PLATFORMS)
$(SYSTEMS) $(PLATFORMS):
	GOOS=$(@D) GOARCH=$(@F) $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/$(@D)-$(@F)/ ./cmd/kube-proxy

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin dist

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What the demo uses on the machine, and what tests use besides: program=package
# of Debian and Ubuntu, or the path of another file=package.
TOOLS                  := nft=nftables ip=iproute2 conntrack=conntrack iptables=iptables
test full vm cluster: TOOLS += ipset=ipset ipvsadm=ipvsadm qemu-system-x86_64=qemu-system-x86 xz=xz-utils zstd=zstd
test full: TOOLS       += chromium=chromium
test full cluster windows-lab windows-figures: TOOLS += wine=wine /usr/lib/wine/wine64=wine64 x86_64-w64-mingw32-gcc=gcc-mingw-w64-x86-64
test full cluster: TOOLS += crun=crun /usr/share/containers/seccomp.json=golang-github-containers-common
# Where modules are loaded by hand. Elsewhere they are built in, or load themselves.
MODULES := nf_tables nf_conntrack nf_nat nft_ct nft_nat nft_masq nft_numgen nft_reject_inet veth bridge sctp

.PHONY: root
root:
	@if [ "$$(id -u)" != 0 ]; then \
		echo "The tests and the demo make network namespaces and load nftables rules into them."; \
		echo "That needs root: run 'sudo make $(MAKECMDGOALS)'. The rules of this machine are not touched."; \
		exit 1; \
	fi

.PHONY: tools
tools:
	@missing=; \
	for tool in $(TOOLS); do \
		command -v $${tool%%=*} >/dev/null || [ -e $${tool%%=*} ] || missing="$$missing $${tool#*=}"; \
	done; \
	if [ -n "$$missing" ]; then \
		echo "Installing$$missing"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	fi
	@for module in $(MODULES); do modprobe -q $$module 2>/dev/null || true; done
