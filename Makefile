# make            builds pleat and its agent
# make install    into PREFIX (default /usr/local), below DESTDIR if given
# make demo       a real program at half the memory it needs, with and without pleat
# make test       everything that CI runs
# make kernels    kernels and machines in QEMU: hours without hardware virtualization
# make chaos      1,000 jobs that are killed, stopped and interrupted at random: an hour
# make sim-pager  the pager's protocol on a simulated machine: 100 million steps
# make net        faults put back into the pager, each of which the simulation must find
# make soak       what takes longer: half an hour of programs that check their memory, java and node with 300 MB

PREFIX ?= /usr/local
CARGO ?= cargo
CC ?= cc
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release

# Tests and measurements are of pleat's defaults, not of whatever this user has set.
export PLEAT_NO_CONFIG = 1

.PHONY: build install uninstall demo test lint unit fuzz e2e chaos chaos-short sim-pager net soak soak-short kernels kernels-short tools fuzz-tools clean

build: tools
	$(CARGO) build --release

# Installs what `make` built; builds it only when it is not there, so that `sudo make install` needs
# no Rust toolchain in root's PATH and leaves no files of root's in the build tree.
# `pleat setup`, as root, gives the helper its capabilities.
install: $(RELEASE)/pleat $(RELEASE)/libpleat_agent.so $(RELEASE)/pleat-helper
	install -D -m 755 $(RELEASE)/pleat $(DESTDIR)$(PREFIX)/bin/pleat
	install -D -m 755 $(RELEASE)/libpleat_agent.so $(DESTDIR)$(PREFIX)/lib/pleat/libpleat_agent.so
	install -D -m 755 $(RELEASE)/pleat-helper $(DESTDIR)$(PREFIX)/lib/pleat/pleat-helper
	$(RELEASE)/pleat generate $(DESTDIR)$(PREFIX)/share

$(RELEASE)/pleat $(RELEASE)/libpleat_agent.so $(RELEASE)/pleat-helper:
	$(MAKE) build

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/pleat $(DESTDIR)$(PREFIX)/lib/pleat/libpleat_agent.so
	rm -f $(DESTDIR)$(PREFIX)/lib/pleat/pleat-helper
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/pleat.1 $(DESTDIR)$(PREFIX)/share/man/man1/pleat-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/pleat
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_pleat
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/pleat.fish

demo: build
	demo/demo.sh $(RELEASE)/pleat

# One after the other, and how long each took.
test:
	@for part in lint unit fuzz e2e chaos-short soak-short; do \
	  begun=$$(date +%s); $(MAKE) --no-print-directory $$part || exit; echo "make $$part: $$(($$(date +%s) - begun)) s"; \
	done

lint: tools
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

# Each property with so many random cases.
CASES ?= 1000
unit: tools
	PROPTEST_CASES=$(CASES) tests/counted unit $(CARGO) test --workspace --exclude pleat-e2e

# The fuzz targets of the codecs and of traces, guided by coverage, each for so many seconds.
FUZZ_SECONDS ?= 10
fuzz: tools fuzz-tools
	CARGO="$(CARGO)" CC="$(CC)" fuzz/run $(FUZZ_SECONDS)

# One at a time: each test measures memory and time of whole jobs. The tests themselves need no optimization; pleat is the release build.
e2e: build
	$(RELEASE)/pleat doctor || [ "$(PLEAT_SKIPS)" != listed ]
	tests/counted e2e $(CARGO) test -p pleat-e2e --no-fail-fast -- --test-threads=1

# What takes too long for every change: half an hour of soak/soak.sh, then java and node with 300 MB and the like.
SOAK_MINUTES ?= 30
soak: build
	soak/soak.sh $(SOAK_MINUTES) $(RELEASE)/pleat
	$(CARGO) test -p pleat-e2e -- --ignored --test-threads=1

# The same for two minutes; where its programs are missing it says so and is skipped (77).
soak-short: build
	tests/counted soak soak/soak.sh 2 $(RELEASE)/pleat

# Jobs that are killed, stopped and interrupted at random (tests/chaos.py), for an hour; `make test` has 42 rounds of it.
CHAOS_ROUNDS ?= 1000
CHAOS_SEED ?= 1
chaos: build
	tests/chaos.py $(RELEASE) --rounds $(CHAOS_ROUNDS) --seed $(CHAOS_SEED)

chaos-short: build
	tests/counted chaos sh -c 'command -v python3 >/dev/null || { echo "SKIP chaos: not installed: python3"; exit 77; }; \
	  exec tests/chaos.py $(RELEASE) --rounds 42'

# The pager's protocol on a simulated machine (crates/pager/src/simulation), from a seed on; `make unit` plays a million steps.
# With debug assertions.
SIM_STEPS ?= 100000000
SIM_SEED ?= 1
sim-pager: tools
	PLEAT_SIM_STEPS=$(SIM_STEPS) PLEAT_SIM_SEED=$(SIM_SEED) $(CARGO) test -p pleat-pager --lib simulation::tests::what -- --nocapture

# Faults that were there once, or could be, put back one by one: the simulation must find each.
net: tools
	CARGO="$(CARGO)" tests/net.sh

# On kernels and machines that this one is not (docs/kernels.md).
kernels: build
	tests/kernels.sh $(RELEASE)

# One of them: Debian's 6.12, half a gigabyte, a CPU without AVX.
kernels-short: build
	tests/counted kernels tests/kernels.sh $(RELEASE) --short

# Each thing missing, with the one command that gets it.
tools:
	@ok=yes; \
	command -v $(CARGO) >/dev/null || { ok=no; \
	  echo "missing: cargo    get it: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"; }; \
	command -v $(CC) >/dev/null || { ok=no; \
	  echo "missing: cc       get it: sudo apt-get install build-essential"; }; \
	[ "$$(uname -sm)" = "Linux x86_64" ] || { ok=no; \
	  echo "missing: x86_64 Linux; pleat runs nowhere else yet"; }; \
	[ $$ok = yes ]

# What only fuzzing needs: libFuzzer is in C++.
fuzz-tools:
	@command -v $(CXX) >/dev/null || { \
	  echo "missing: $(CXX)      get it: sudo apt-get install g++"; exit 1; }

clean:
	$(CARGO) clean
