# The front door: everything a newcomer runs. CMake and ctest do the work; `make` only strings it together.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
OUTPUT ?= out/train
KILLS ?= 60

.PHONY: help configure build train test soak format docs clean

help:
	@echo "make build    set up the machine once (./bootstrap) and build the program, build/bin/lethe"
	@echo "make train    build, then train the recipe tiny on examples/data into OUTPUT=$(OUTPUT)"
	@echo "make test     build the program and its tests, then run every test"
	@echo "make soak     build, then kill and resume a run KILLS=$(KILLS) times and check that nothing is lost"
	@echo "make format   format the C++ sources (clang-format-14)"
	@echo "make docs     write docs/reference from the program's own tables"
	@echo "make clean    remove the build folders; .venv and out/ stay"
	@echo "Variables: JOBS=$(JOBS)  OUTPUT=$(OUTPUT)  KILLS=$(KILLS)  LETHE_TORCH_ROOT=DIR (a LibTorch to use as it is)"

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

format:
	@git ls-files '*.h' '*.cpp' | xargs clang-format-14 -i

docs: build
	@build/bin/lethe docs --out docs/reference

clean:
	rm -rf build build-*
