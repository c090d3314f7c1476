#!/usr/bin/env bash
# Runs what `make release` has built: the checksums, the chart, the images, and each plugin, which puts a cluster to sleep (arm64 by qemu-user).
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "release: $*" >&2; exit 1; }
[ -f dist/SHA256SUMS ] || fail "dist/ is missing: run \`make release\`"
(cd dist && sha256sum --quiet --check SHA256SUMS)
work=$(mktemp -d)
finish() { bin/testbed down --state "$work/world" >/dev/null 2>&1 || true; rm -rf "$work"; }
trap finish EXIT
for helm in "$(bash tests/assets.sh helm)"/v*/helm; do
    "$helm" template one dist/hibernate-*.tgz --kube-version 1.36.0 >/dev/null
done
for sbom in dist/*.cdx.json; do
    python3 -c 'import json, sys; sbom = json.load(open(sys.argv[1])); assert sbom["bomFormat"] == "CycloneDX" and len(sbom["components"]) > 50' "$sbom"
done

bin/testbed up --state "$work/world" >"$work/up.log" 2>&1 || { cat "$work/up.log"; fail "the world did not start"; }
eval "$(bin/testbed env --state "$work/world")"
for archive in dist/kubectl-hibernate-v*-linux-*.tar.gz; do
    arch=$(basename "${archive##*-}" .tar.gz)
    mkdir "$work/$arch"
    tar -xzf "$archive" -C "$work/$arch"
    emulator=()
    if [ "$arch" = arm64 ] && [ "$(uname -m)" = x86_64 ]; then
        if ! command -v qemu-aarch64-static >/dev/null || [ ! -d /usr/aarch64-linux-gnu/lib ]; then
            echo "==> skipped: the plugin for linux/arm64 needs qemu-aarch64-static and arm64's glibc: apt-get install qemu-user-static libc6-arm64-cross"
            continue
        fi
        emulator=(qemu-aarch64-static -L /usr/aarch64-linux-gnu)
    fi
    plugin() { "${emulator[@]}" "$work/$arch/kubectl-hibernate" "$@"; }
    plugin version
    plugin demo --wait --timeout 3m
    plugin resume demo --wait --timeout 5m
    echo "==> linux/$arch: a sleep and a wake"
done
bash manifests/images/test.sh dist
