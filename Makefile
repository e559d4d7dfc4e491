# A thin front for cmake: every target is one or two commands that can be typed by hand.
# docs/TESTING.md says what the test targets run.

JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
BUILD = cmake --preset $(1) $(2) >/dev/null && cmake --build --preset $(1) -j $(JOBS)
CTEST = ctest --output-on-failure --no-tests=error -j $(JOBS)
# The tests in which threads meet in the memory layer: a small part of the build, so it is cheap.
RACES = watch ledger_threads ticket hot account
define TSAN_MEM
cmake --preset tsan >/dev/null
	cmake --build --preset tsan -j $(JOBS) --target $(addprefix test_,$(RACES))
	cd build/tsan && $(CTEST) -R '^test_($(subst $() ,|,$(RACES)))$$'
endef

# What an emulated aarch64 is asked at each check, two minutes' worth: kernels, formats, files, and
# whole models to the bit.
AARCH64 = kernels matmul heads rows recurrent rope route quant_types quant_half quant_quantize \
	quant_golden gguf_read gguf_malformed block kv bits golden
AARCH64_TESTS = $(subst $() ,|,$(AARCH64) bits_plain)
AARCH64_CASES = ^(test_($(AARCH64_TESTS))|golden_wide-.*|golden_(qwen|gemma)3)$$
AARCH64_ROOT = scripts/sysroot.sh arm64 build/aarch64-root
define AARCH64_SHORT
cmake --preset aarch64 >/dev/null && \
	cmake --build --preset aarch64 -j $(JOBS) --target $(addprefix test_,$(AARCH64)) && \
	(cd build/aarch64 && $(CTEST) -R '$(AARCH64_CASES)')
endef

.DEFAULT_GOAL := build
.PHONY: build demo check clang dev asan tsan aarch64 tsan-mem fuzz bench bench-mem bench-chat \
	install format tidy clean help

help: ## this list
	@awk -F ':.*## ' '/^[a-z].*:.*## /{printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## the program, at build/release/pannier
	@scripts/deps.sh build
	$(call BUILD,release)

demo: ## a small model answers a question; MODEL=FILE: that model
	@scripts/deps.sh build demo
	$(call BUILD,release)
	@scripts/demo.sh build/release/pannier

check: ## every test, the fast ones once more under the sanitizers, kernels on an emulated aarch64
	@scripts/deps.sh build check
	@scripts/python_gguf.sh build/python
	$(TSAN_MEM)
	$(call BUILD,asan)
	cd build/asan && $(CTEST) -L fast
	@if scripts/deps.sh aarch64 && $(AARCH64_ROOT); then set -x; $(AARCH64_SHORT); \
	else echo 'check: not on aarch64, for want of the packages above'; fi
	$(call BUILD,check)
	cd build/check && $(CTEST) --output-log ctest.log

clang: ## a build by clang, its fast tests and those of the kernels
	@scripts/deps.sh build check fuzz
	$(call BUILD,clang)
	cd build/clang && $(CTEST) -L 'fast|kern'

dev asan tsan: ## one build with all its tests
	@scripts/deps.sh build check
	$(call BUILD,$@)
	cd build/$@ && $(CTEST)

tsan-mem: ## the memory layer's tests under the thread sanitizer
	@scripts/deps.sh build check
	$(TSAN_MEM)

aarch64: ## a cross build for it, its fast tests and more of the kernels' under qemu
	@scripts/deps.sh build check aarch64
	@$(AARCH64_ROOT)
	$(call BUILD,aarch64)
	cd build/aarch64 && $(CTEST) -L fast
	cd build/aarch64 && $(CTEST) -R '$(AARCH64_CASES)|test_(attention|math)|law3_wide' -LE fast

fuzz: ## the fuzz targets, SECONDS (30) each
	@scripts/deps.sh build fuzz
	$(call BUILD,fuzz)
	@scripts/fuzz.sh build/fuzz $(or $(SECONDS),30)

bench: ## speed of MODEL; with PEER=, WORK= and FORCED=: beside llama.cpp, see bench/compare.py
	@scripts/deps.sh build
	$(call BUILD,release)
	@test -n "$(MODEL)$(PEER)" || { echo "bench: MODEL=FILE, or PEER=DIR and the rest" >&2; exit 2; }
	$(if $(PEER),bench/compare.py --pannier build/release/pannier --peer $(PEER) \
		--forced $(FORCED) --work $(WORK) $(BENCH_FLAGS),build/release/pannier bench $(MODEL))

bench-mem: ## what reading a snapshot, deciding and polling cost on this machine
	@scripts/deps.sh build
	$(call BUILD,release,-DPN_BENCH=ON)
	build/release/bench/bench_mem

bench-chat: ## how long conversations of 125 to 1,000 messages take to render; by TEMPLATE=FILE
	@scripts/deps.sh build
	$(call BUILD,release,-DPN_BENCH=ON)
	build/release/bench/bench_chat 9 $(TEMPLATE)

install: ## program, libraries, headers and pkg-config files under PREFIX (and DESTDIR)
	@scripts/deps.sh build
	$(call BUILD,release,-DCMAKE_INSTALL_PREFIX=$(PREFIX))
	cmake --install build/release

format: ## clang-format over all C files
	scripts/check_format.py --fix

tidy: ## the linters alone
	@scripts/deps.sh build check
	cmake --preset check >/dev/null
	scripts/check_includes.py
	scripts/tidy.py
	scripts/check_format.py
	scripts/clang_tidy.py build/check

clean: ## no build folder
	rm -rf build
