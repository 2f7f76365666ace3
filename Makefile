# The front door: everything a newcomer runs. CMake and ctest do the work; `make` only strings it together.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
OUTPUT ?= out/train
KILLS ?= 60
SECONDS_EACH ?= 120
PEERS ?= 1
BENCH_OUTPUT ?= out/bench
RANDOM_PLANS ?= 60

.PHONY: help configure build train test soak fuzz bench bench-recompute format docs clean

help:
	@echo "make build    set up the machine once (./bootstrap) and build the program, build/bin/lethe"
	@echo "make train    build, then train the recipe tiny on examples/data into OUTPUT=$(OUTPUT)"
	@echo "make test     build the program and its tests, then run every test"
	@echo "make soak     build, then kill and resume a run KILLS=$(KILLS) times and check that nothing is lost"
	@echo "make fuzz     build the fuzzers and run each for SECONDS_EACH=$(SECONDS_EACH) from a new seed"
	@echo "make bench    operators against this machine's peaks, and the whole step against its peers, into $(BENCH_OUTPUT);"
	@echo "              about an hour on two idle cores; PEERS=0: without the peers (no download, minutes)"
	@echo "make bench-recompute  time against memory of every way to recompute into $(BENCH_OUTPUT)/recompute.md, then every"
	@echo "              mode in every case byte for byte against none (and RANDOM_PLANS=$(RANDOM_PLANS) random plans); an hour"
	@echo "              and a quarter"
	@echo "make format   format the C++ sources (clang-format-14)"
	@echo "make docs     write docs/reference from the program's own tables"
	@echo "make clean    remove the build folders; .venv and out/ stay"
	@echo "Variables: JOBS=$(JOBS)  OUTPUT=$(OUTPUT)  KILLS=$(KILLS)  SECONDS_EACH=$(SECONDS_EACH)  PEERS=$(PEERS)  BENCH_OUTPUT=$(BENCH_OUTPUT)  LETHE_TORCH_ROOT=DIR (a LibTorch to use as it is)"

configure:
	@./bootstrap $(BOOTSTRAP_OPTIONS)
	@cmake --preset dev

build: configure
	@cmake --build --preset dev --parallel $(JOBS) --target lethe_cli

train: build
	@build/bin/lethe train --recipe tiny --output $(OUTPUT) --overwrite
	@echo "model:  $(OUTPUT)/model"
	@echo "report: $(OUTPUT)/report.html"

test: BOOTSTRAP_OPTIONS = --oracles
test: configure
	@cmake --build --preset dev --target all fuzz --parallel $(JOBS)
	@ctest --preset dev

soak: build
	@LETHE_PROGRAM=build/bin/lethe PYTHONDONTWRITEBYTECODE=1 python3 tests/soak/kill_test.py --kills $(KILLS)

# The suite's runs have a fixed seed and twenty seconds each.
fuzz: configure
	@cmake --build --preset dev --target fuzz --parallel $(JOBS)
	@cd build/fuzz && for corpus in ../../tests/fuzz/corpus/*; do name=$$(basename $$corpus); echo "== $$name"; \
	  ASAN_OPTIONS=detect_leaks=0 ./$$name -max_total_time=$(SECONDS_EACH) -max_len=4096 -timeout=10 -verbosity=0 \
	    -print_final_stats=1 $$name-corpus $$corpus || exit 1; done

# Each result begins a new file: a table belongs to one run on one machine.
bench:
	@./bootstrap
	@cmake --preset bench
	@cmake --build --preset bench --parallel $(JOBS) --target bench_ops lethe_step roofline
	@[ $(PEERS) = 0 ] || bench/peers/setup.sh
	@mkdir -p $(BENCH_OUTPUT)
	@rm -f $(BENCH_OUTPUT)/operators.md $(BENCH_OUTPUT)/peers.md $(BENCH_OUTPUT)/roofline.md
	@build-bench/bin/bench_ops --out $(BENCH_OUTPUT)/operators.md
	@$(if $(filter 0,$(PEERS)),python3,build/peers/bin/python) bench/peers/peer_table.py --programs build-bench/bin \
	  --out $(BENCH_OUTPUT)/peers.md --roofline-out $(BENCH_OUTPUT)/roofline.md $(if $(filter 0,$(PEERS)),--peers none)
	@echo "operators: $(BENCH_OUTPUT)/operators.md"
	@echo "peers:     $(BENCH_OUTPUT)/peers.md"
	@echo "roofline:  $(BENCH_OUTPUT)/roofline.md"

bench-recompute:
	@./bootstrap
	@cmake --preset bench
	@cmake --build --preset bench --parallel $(JOBS) --target bench_pareto bench_recompute bench_trace recompute_matrix
	@mkdir -p $(BENCH_OUTPUT)
	@rm -f $(BENCH_OUTPUT)/recompute.md
	@build-bench/bin/bench_recompute
	@build-bench/bin/bench_trace --config bench/peers/model.json
	@build-bench/bin/bench_pareto --config bench/peers/model.json --out $(BENCH_OUTPUT)/recompute.md
	@build-bench/bin/recompute_matrix --random $(RANDOM_PLANS)
	@echo "time against memory: $(BENCH_OUTPUT)/recompute.md"

format:
	@git ls-files '*.h' '*.cpp' | xargs clang-format-14 -i

docs: build
	@build/bin/lethe docs --out docs/reference

clean:
	rm -rf build build-*
