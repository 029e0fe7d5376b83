# Verifier and drafter, and what fetches the default model; targets `cpu` and `cuda`. Build it from the repository's root.
FROM python:3.11-slim-bookworm AS dependencies
# The public index's torch brings gigabytes of CUDA along: what `cuda` needs. For `cpu` give a CPU-only index's URL.
ARG TORCH_INDEX=
RUN python3 -m venv /opt/slipstream
ENV PATH=/opt/slipstream/bin:$PATH
WORKDIR /src
COPY constraints-cpu.txt ./
RUN pip install --no-cache-dir -r constraints-cpu.txt ${TORCH_INDEX:+--index-url $TORCH_INDEX}
# Without our packages beside it, pyproject.toml brings what they need: a layer that stays while the code changes.
COPY pyproject.toml docker/constraints.txt ./
# Several packages ask for triton, which is as large as torch itself and which only a GPU needs; CUDA's torch has its own.
RUN touch README.md \
    && pip install --no-cache-dir -c constraints.txt '.[engine,grammar,model]' \
    && pip uninstall --yes slipstream \
    && if python -c 'import sys, torch; sys.exit(torch.version.cuda is not None)'; then pip uninstall --yes triton; fi

FROM dependencies AS build
COPY README.md ./
COPY drafter_svc drafter_svc
COPY gateway gateway
COPY launcher launcher
COPY slipstream slipstream
COPY verifier_svc verifier_svc
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.11-slim-bookworm AS cpu
# The folders are the user's, so that named volumes mounted there are, too.
RUN useradd --uid 10001 --create-home slipstream \
    && install --directory --owner slipstream --group slipstream /models /var/cache/slipstream
# The last three are those of slipstream/config.py: math threads that wait without spinning, weights in huge pages.
ENV PATH=/opt/slipstream/bin:$PATH PYTHONUNBUFFERED=1 SLIPSTREAM_MODELS=/models \
    OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=20000 \
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432
COPY --from=dependencies /opt/slipstream /opt/slipstream
COPY drafters /drafters
COPY --from=build /dist /dist
RUN pip install --no-cache-dir --no-deps --no-index /dist/*.whl
USER 10001:10001
WORKDIR /home/slipstream
EXPOSE 50051 50052 9091 9092
CMD ["python", "-m", "verifier_svc", "--help"]

FROM cpu AS cuda
USER root
# Triton compiles a launcher for each kernel and keeps what it made.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
ENV TRITON_CACHE_DIR=/var/cache/slipstream/triton
USER 10001:10001
