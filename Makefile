PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow lint proto clean

demo: $(STAMP)
	$(BIN)/slipstream demo

test: $(STAMP)
	$(BIN)/slipstream model fetch
	$(BIN)/python -m pytest

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
proto: $(STAMP)
	mkdir -p build/proto
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=build/proto --grpc_python_out=build/proto \
	  --mypy_out=quiet:build/proto --mypy_grpc_out=quiet:build/proto proto/slipstream/v1/*.proto
	sed -i 's/slipstream\.v1 import/slipstream.wire.v1 import/; s/slipstream\.v1\.\([a-z]*\)_pb2/slipstream.wire.v1.\1_pb2/g; s/import slipstream\.v1/import slipstream.wire.v1/' build/proto/slipstream/v1/*.py*
	mkdir -p $(WIRE)
	cp build/proto/slipstream/v1/*_pb2*.py* $(WIRE)/
	rm -rf build/proto

$(STAMP): pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -r constraints-cpu.txt
	$(BIN)/pip install -q -e '.[dev]' -c constraints-cpu.txt
	touch $@

clean:
	rm -rf $(VENV) models
