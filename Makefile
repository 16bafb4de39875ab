# Each target is a line or two of cargo or npm. `make help` lists them.

ARGS ?=
# The dashboard is part of the binary.
WEB := web/dist/index.html

.PHONY: help run build web test check lab bench report fuzz

help: ## This list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

run: build ## Build and start the gateway; ARGS="--inside eth1 --outside eth0"
	./target/release/weir run $(ARGS)

build: web ## Build target/release/weir
	@scripts/setup build
	cargo build --release -p weir

web: $(WEB) ## Build the dashboard

$(WEB): web/package-lock.json $(shell find web/src -type f 2>/dev/null)
	cd web && npm ci --no-audit --no-fund --loglevel=error && npm run --silent build

test: check lab ## Run every test, lab stories in their short form included

check: web ## Formatting, lints and tests, without the lab
	@scripts/setup test
	cd web && npm run --silent lint && npm test --silent
	cargo fmt --check
	clang-format --dry-run -Werror bpf/*.h bpf/*.c
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	@[ $$(id -u) -eq 0 ] || echo 'weir: not root: the tests of mode adopt are skipped' >&2
	cargo test --workspace --quiet

lab: web ## Every lab story, short; needs root and says so
	@scripts/setup test
	cargo build --release -p weir -p weir-lab
	cargo build --release -p weir-store --examples
	scripts/lab report --quick --out target/lab-quick

report: web ## Every lab story in full: one HTML page in report/
	@scripts/setup test
	cargo build --release -p weir -p weir-lab
	cargo build --release -p weir-store --examples
	scripts/lab report --out report

bench: ## Benchmarks of single rooms; docs/budgets.md says what they are for
	cargo run --release -p weir-store --example bench -- hits
	cargo run --release -p weir-store --example bench -- index
	cargo run --release -p weir-store --example bench -- open target/bench
	cargo run --release -p weir-store --example bench -- rates target/bench

fuzz: ## 30 seconds of each fuzz target (nightly toolchain, cargo-fuzz)
	cd fuzz && for target in $$(cargo +nightly fuzz list); do cargo +nightly fuzz run $$target -- -max_total_time=30 || exit 1; done
