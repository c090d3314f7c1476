# Two images from one build: `docker build --target webhook .` and `docker build --target controller .`
#
# Not built yet: the development machines run no container engine. For a release, pin both base images by digest.

FROM rust:1.95-bookworm AS build
# aws-lc is written in C and needs cmake. Only the controller links aws-sdk-ec2, which needs 8 GB of memory to compile.
RUN apt-get update && apt-get install --yes --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --workspace --locked --bins && \
    mkdir /out && cp target/release/hibernate-webhook target/release/hibernate-controller /out/

# The same Debian's glibc and libgcc, public CA certificates, no shell, user 65532.
FROM gcr.io/distroless/cc-debian12:nonroot AS base
COPY LICENSE /LICENSE

FROM base AS webhook
COPY --from=build /out/hibernate-webhook /usr/local/bin/hibernate-webhook
ENTRYPOINT ["/usr/local/bin/hibernate-webhook"]

FROM base AS controller
COPY --from=build /out/hibernate-controller /usr/local/bin/hibernate-controller
ENTRYPOINT ["/usr/local/bin/hibernate-controller"]
