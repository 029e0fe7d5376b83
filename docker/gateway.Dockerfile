# The gateway and the command line: everything that needs no torch. Build it from the repository's root.
FROM python:3.11-slim-bookworm AS dependencies
RUN python3 -m venv /opt/slipstream
ENV PATH=/opt/slipstream/bin:$PATH
WORKDIR /src
# Without our packages beside it, pyproject.toml brings what they need: a layer that stays while the code changes.
COPY pyproject.toml docker/constraints.txt ./
RUN touch README.md \
    && pip install --no-cache-dir -c constraints.txt . \
    && pip uninstall --yes slipstream

FROM dependencies AS build
COPY README.md ./
COPY drafter_svc drafter_svc
COPY gateway gateway
COPY launcher launcher
COPY slipstream slipstream
COPY verifier_svc verifier_svc
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --create-home slipstream
ENV PATH=/opt/slipstream/bin:$PATH PYTHONUNBUFFERED=1
COPY --from=dependencies /opt/slipstream /opt/slipstream
COPY --from=build /dist /dist
RUN pip install --no-cache-dir --no-deps --no-index /dist/*.whl
USER 10001:10001
WORKDIR /home/slipstream
EXPOSE 50050 50080 9090
CMD ["python", "-m", "gateway", "--help"]
