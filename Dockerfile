# The bridge as an image. Build: docker build -t acs-aaep-bridge:0.1.0 .
# A release names the base by digest: --build-arg BASE_DIGEST=@sha256:… (docker buildx imagetools inspect shows it).
ARG BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm
ARG BASE_DIGEST=

FROM ${BASE_IMAGE}${BASE_DIGEST} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
# Dependencies first: they change less often than the code, and come with their hashes or not at all.
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN python -m venv /opt/bridge \
    && /opt/bridge/bin/pip install --require-hashes --only-binary :all: -r requirements/runtime.txt \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes --only-binary :all: -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY schemas schemas
COPY src src
RUN /opt/build/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /dist . \
    && /opt/bridge/bin/pip install --no-deps /dist/*.whl \
    && /opt/bridge/bin/python -m compileall -q /opt/bridge

FROM ${BASE_IMAGE}${BASE_DIGEST}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="acs-aaep-bridge" \
      org.opencontainers.image.description="Stream bridge from ACS agent hook events to AAEP accessibility lifecycle events on Kafka" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="the acs-aaep-bridge authors" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/bridge /opt/bridge
ENV PATH=/opt/bridge/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Numeric, so that Kubernetes can see that it is not root; nothing in the image belongs to it.
USER 10001:10001
WORKDIR /tmp
EXPOSE 9404
ENTRYPOINT ["acs-aaep-bridge"]
CMD ["run"]
