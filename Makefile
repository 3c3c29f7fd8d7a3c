# Thin: each target calls a script or CMake. `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help setup build test demo bench sanitize tsan fuzz mutation format clean

help:  ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup:  ## install what is missing: Debian packages, ggml in .venv
	@scripts/setup.sh build

build: setup  ## build/stet (Release)
	@scripts/build.sh build stet

test:  ## everything the tests need, then all tests
	@scripts/test.sh build

demo: build  ## a scripted chat that survives kill -9, with a real model
	@.venv/bin/python scripts/fetch_models.py smollm2
	@.venv/bin/python scripts/demo.py $(DEMO_ARGS)

bench: build  ## speed and memory beside llama.cpp; writes bench/*results.md (first time: builds the peer, 15 min)
	@scripts/setup.sh build test bench
	@.venv/bin/python scripts/fetch_models.py all
	@.venv/bin/python bench/bench.py $(BENCH_ARGS)
	@scripts/build.sh build store_bench -DSTET_BUILD_BENCH=ON
	@scripts/build.sh build text_bench
	@.venv/bin/python bench/state_bench.py
	@.venv/bin/python bench/text_bench.py $(TEXT_ARGS)
	@.venv/bin/python bench/serve_bench.py $(SERVE_ARGS)
	@.venv/bin/python bench/start_bench.py $(START_ARGS)
	@.venv/bin/python bench/families.py $(FAMILIES_ARGS)

sanitize:  ## all tests under AddressSanitizer and UBSan, in build-asan
	@scripts/test.sh build-asan -DSTET_SANITIZE=address,undefined

tsan:  ## all tests under ThreadSanitizer, in build-tsan
	@scripts/test.sh build-tsan -DSTET_SANITIZE=thread

fuzz:  ## the fuzz targets, STET_FUZZ_S (60) seconds each, in build-fuzz
	@scripts/fuzz.sh $(FUZZ_ARGS)

mutation: setup  ## changes of the state code that the tests must notice, in build-mutation
	@.venv/bin/python tests/mutation/mutate.py $(MUTATION_ARGS)

format:  ## clang-format over the C++ sources
	@scripts/format.sh

clean:  ## remove the build folders (.venv and the cache stay)
	rm -rf build build-asan build-tsan build-fuzz build-mutation
