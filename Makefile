PYTHON ?= python3
# On Linux the public index's torch brings gigabytes of CUDA along; give the URL of a CPU-only index to be spared them.
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow lint proto clean

demo: $(STAMP)
	$(BIN)/slipstream demo

# Tests that start services have the machine to themselves; the others share its cores, with one math thread each.
ALONE := tests/chaos tests/e2e tests/launcher
test: $(STAMP)
	$(BIN)/slipstream model fetch
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile $(addprefix --ignore=,$(ALONE)); shared=$$?; \
	$(BIN)/python -m pytest $(ALONE) && exit $$shared

test-slow: $(STAMP)
	$(BIN)/slipstream model fetch
	$(BIN)/python -m pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Generated code is committed; tests/wire/test_generated.py runs this into a temporary folder and fails when it drifts.
# protoc names Python modules after the proto package; ours live one level deeper, hence the sed.
WIRE := slipstream/wire/v1
STAGE := build/proto
proto: $(STAMP)
	rm -rf $(STAGE)
	mkdir -p $(STAGE) $(WIRE)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m grpc_tools.protoc -I proto --python_out=$(STAGE) --grpc_python_out=$(STAGE) \
	  --mypy_out=quiet:$(STAGE) --mypy_grpc_out=quiet:$(STAGE) proto/slipstream/v1/*.proto
	sed -i 's/slipstream\.v1 import/slipstream.wire.v1 import/; s/slipstream\.v1\.\([a-z]*\)_pb2/slipstream.wire.v1.\1_pb2/g; s/import slipstream\.v1/import slipstream.wire.v1/' $(STAGE)/slipstream/v1/*.py*
	cp $(STAGE)/slipstream/v1/*_pb2*.py* $(WIRE)/
	rm -rf $(STAGE)

$(STAMP): pyproject.toml constraints-cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python %d.%d is too old; run make PYTHON=... with 3.11 or newer" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV): a few minutes"
	$(BIN)/pip install -q -r constraints-cpu.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(BIN)/pip install -q -e '.[dev]' -c constraints-cpu.txt
	touch $@

clean:
	rm -rf $(VENV) models
