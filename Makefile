# `make help` lists the targets. Each first installs the packages that it lacks (see scripts/setup).

.DEFAULT_GOAL := help
.PHONY: help build demo test matrix check docs bench bench-quick soak conformance sanitize fuzz package try-package aarch64 clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile everything
	@scripts/setup build
	rebar3 compile
	@# The commands expect these binaries there, even if cargo has another target directory.
	@! command -v cargo >/dev/null || cargo build --quiet --release --locked \
		--manifest-path bench/native/Cargo.toml --target-dir bench/native/target

demo: build ## compare stock gen_tcp with Weir on real traffic, in two minutes
	@scripts/setup demo
	bin/weir demo

test: ## run all tests; APP=weir_http SUITE=weir_http_SUITE CASE=GROUP:CASE for fewer
	@scripts/setup build test
	@scripts/test $(APP) $(SUITE) $(CASE)

matrix: build ## run all tests on OTP 27 and 29, in Debian roots; OTP=29 for one, OTP=29:weir for one application
	@scripts/setup matrix
	@scripts/matrix $(OTP)

check: ## check formatting, lints, layers, compiler warnings, xref, dialyzer
	@scripts/setup build check
	@scripts/check

docs: ## write the reference to _build/docs, and check links there and in all Markdown files
	@scripts/setup build check
	@scripts/docs

bench: build ## run every scenario, into bench/results, in an hour; BENCH="--only seeds" for less
	@scripts/setup bench
	bench/peers/build
	bin/weir bench $(BENCH)

bench-quick: ## run the most important scenarios, in five minutes
	@$(MAKE) --no-print-directory bench BENCH="--only quick --quick"

soak: build ## random mixtures with every byte checked; 100,000 connections; the load generator against wrk; half an hour of the chaos build
	@scripts/setup test soak
	rebar3 ct --dir apps/weir/soak,apps/weir_load/soak,apps/weir_http/soak,apps/weir_proxy/soak,apps/weir_pubsub/soak
	rebar3 ct --suite compatibility/test/weir_http_clients_SUITE --case go_net_http
	scripts/chaos

conformance: build ## run OTP's own TCP suites on stock and on Weir (OTP=27 or 29: in a root with that OTP), and Autobahn's cases
	@scripts/setup build conformance
	@# On this machine's OTP; see conformance/results/websocket.md.
	@[ -n "$(OTP)$(SUITES)" ] || WEIR_WRITE_RESULTS=1 rebar3 ct --suite apps/weir_http/test/weir_http_websocket_cases_SUITE
	@scripts/conformance $(OTP) $(SUITES)

sanitize: build ## run native code under AddressSanitizer, ThreadSanitizer and loom
	@scripts/setup test sanitize
	@scripts/sanitize

fuzz: ## run each fuzz target for WEIR_FUZZ_SECONDS (300)
	@scripts/setup build fuzz
	@scripts/fuzz

package: build ## write the packages for Hex, with native libraries for four systems, to _build/packages
	@scripts/setup package
	@scripts/package

try-package: ## use the packages in a Debian root without compilers (after make package)
	@scripts/setup try-package
	@scripts/try-package

aarch64: build ## run suites of weir on aarch64, in qemu on other machines (after make package)
	@scripts/setup package aarch64
	@scripts/aarch64

clean: ## remove what was built
	rm -rf _build apps/weir/native/target apps/weir_load/native/target apps/weir_http/native/target
	rm -rf bench/native/target bench/peers/target bench/peers/tokio/target
	rm -f apps/weir/priv/weir_nif.so apps/weir_http/priv/weir_http_nif.so apps/weir_load/priv/weir_load_nif.so apps/weir_load/priv/report/uplot.* apps/weir_scope/priv/page/uplot.*
