# Two images of one source:
#   docker build -t affinity-scheduler:1.0.0 .                        the product: without the sandbox, that is devcluster and demo
#   docker build -t affinity-scheduler-demo:1.0.0 --target demo .     with all of it; `docker run` plays the demo
# Both run as user 65532. The product writes no file at all; the demo keeps its logs in /tmp while it plays.
# For several architectures, by emulation or on builders of each; every stage is of the image's own:
#   docker buildx build --platform linux/amd64,linux/arm64 --push -t REGISTRY/affinity-scheduler:1.0.0 .
# Packages are those of config/locks, by hash. The base image is a tag, since its digest is known to its registry alone:
#   docker buildx imagetools inspect python:3.13-slim --format '{{.Manifest.Digest}}'
#   docker build --build-arg BASE=python:3.13-slim@sha256:... .
# Behind a proxy that signs by an authority of its own:
#   docker build --build-arg "CERTIFICATE_AUTHORITY=$(cat authority.pem)" .
ARG PYTHON=3.13
ARG BASE=python:${PYTHON}-slim
# Of the base image's Debian, whose signed index has its hash.
ARG JEMALLOC=5.3.0-3

FROM ${BASE} AS dependencies
WORKDIR /src
COPY config/locks config/locks
ARG CERTIFICATE_AUTHORITY
RUN { cat /etc/ssl/certs/ca-certificates.crt; printf '%s\n' "$CERTIFICATE_AUTHORITY"; } > authorities.pem
ENV PIP_CERT=/src/authorities.pem
# Without pip: nothing can be installed into it later.
RUN python -m venv --without-pip /opt/affinity-scheduler
# What the webhook needs besides comes along: all commands of the product are in one image.
RUN pip --python /opt/affinity-scheduler/bin/python install --no-cache-dir --no-compile --disable-pip-version-check --only-binary :all: --require-hashes -r config/locks/image.txt
# Other packages' tests, and what one leaves beside the packages.
RUN find /opt/affinity-scheduler/lib -type d -name tests -prune -exec rm -r {} + \
    && find /opt/affinity-scheduler/lib/python3.*/site-packages -maxdepth 1 '(' -name '*.md' -o -name '*.toml' ')' -delete
RUN pip install --no-cache-dir --no-compile --disable-pip-version-check --only-binary :all: --require-hashes -r config/locks/build.txt --target build-backend

# Bytecode that is never checked against its source: on a read-only file system it could not be renewed anyway.
FROM dependencies AS product-build
COPY pyproject.toml README.md LICENSE ./
COPY scheduler/__init__.py scheduler/__main__.py scheduler/errors.py scheduler/py.typed scheduler/version.py scheduler/
COPY scheduler/engine scheduler/engine
COPY scheduler/daemon scheduler/daemon
COPY scheduler/tools scheduler/tools
COPY scheduler/sdk scheduler/sdk
COPY scheduler/cli scheduler/cli
# From there the wheel takes the demo's manifests, of which the product has none.
RUN mkdir -p manifests/examples
RUN PYTHONPATH=build-backend pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
RUN pip --python /opt/affinity-scheduler/bin/python install --no-compile --disable-pip-version-check --no-deps --no-index dist/*.whl
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/affinity-scheduler/lib

FROM product-build AS demo-build
COPY scheduler/sandbox scheduler/sandbox
COPY manifests/examples manifests/examples
RUN PYTHONPATH=build-backend pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
RUN pip --python /opt/affinity-scheduler/bin/python install --no-compile --disable-pip-version-check --no-deps --no-index --force-reinstall dist/*.whl
RUN python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/affinity-scheduler/lib

FROM ${BASE} AS runtime
# The base image brings the standard library without bytecode, and pip, which has no work here.
RUN python -m pip uninstall --yes --quiet --root-user-action ignore pip \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(test|idlelib|lib2to3|site-packages)/' /usr/local/lib
# Python's own allocator keeps a MiB for as long as one small object is left in it: after 1,000 pods with 128 affinity
# terms each had gone, 275 MiB of 280. jemalloc gives most of it back within seconds, for as much CPU.
ARG JEMALLOC
RUN apt-get update && apt-get install --yes --no-install-recommends "libjemalloc2=${JEMALLOC}" && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/affinity-scheduler/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONMALLOC=malloc \
    LD_PRELOAD=libjemalloc.so.2 \
    MALLOC_CONF=background_thread:true,narenas:1
ARG BASE
ARG VERSION=1.0.0
LABEL org.opencontainers.image.title="affinity-scheduler" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.base.name="${BASE}" \
      org.opencontainers.image.description="A second Kubernetes scheduler for workloads that care which pods run beside which." \
      org.opencontainers.image.licenses="Apache-2.0"
WORKDIR /
# A number: runAsNonRoot cannot be checked against a name.
USER 65532:65532
EXPOSE 10259
# A container's first process gets no SIGTERM before it has a handler: it waits until Python has started.
ENTRYPOINT ["env", "--block-signal=TERM", "affinity-scheduler"]

FROM runtime AS demo
COPY --from=demo-build /opt/affinity-scheduler /opt/affinity-scheduler
CMD ["demo"]

FROM runtime AS product
COPY --from=product-build /opt/affinity-scheduler /opt/affinity-scheduler
CMD ["run"]
