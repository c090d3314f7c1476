#!/usr/bin/env bash
# Builds everything of a release into dist/: the plugin for each Linux target whose standard library is installed, both images, the chart, the
# manifests, the krew entry, SBOMs, licenses and checksums. The same commit gives the same bytes. Publishes nothing.
#
# $REGISTRY goes in front of the images in the chart and in install.yaml: without it, neither names an image that can be pulled.
#
# Builds in a folder of its own: paths of this machine are remapped, which compiles every dependency once more (about 15 minutes, once).
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "release: $*" >&2; exit 1; }
value() { bash manifests/package.sh "$1"; }
version=$(value version)
chart=$(sed -n 's/^version: //p' charts/hibernate/Chart.yaml)
tag=$(git tag --points-at HEAD --list 'v*' | tail -n 1)
dirty=$(git status --porcelain)
[ -z "$dirty" ] || fail "the tree is not clean, commit or remove: $(echo "$dirty" | head -n 5)"
[ "$chart" = "$version" ] || fail "Cargo.toml has version $version, charts/hibernate/Chart.yaml $chart"
[ -z "$tag" ] || [ "$tag" = "v$version" ] || fail "Cargo.toml has version $version, the tag of this commit is $tag"
for tool in buildah kubectl python3; do command -v "$tool" >/dev/null || fail "$tool is missing: on Debian, apt-get install buildah"; done

cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/kubectl-hibernate
zig=$(bash tests/assets.sh zigbuild)/venv/bin
tools=$(bash tests/assets.sh release)/bin
export PATH=$tools:$zig:$PATH CARGO_TARGET_DIR=$cache/release SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
cargo_home=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="--remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$CARGO_TARGET_DIR=/target"
export CFLAGS="-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$CARGO_TARGET_DIR=/target"
# Not for what cargo builds: the wrapper of lints, and flags of tests.
unset CARGO_ENCODED_RUSTFLAGS RUSTC_WORKSPACE_WRAPPER CARGO_FLAGS MAKEFLAGS MFLAGS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/dist
mkdir -p "$out" "$work/programs"

# pack ARCHIVE FOLDER NAME...: names, modes and bytes alone count.
pack() {
    local archive=$1 folder=$2
    shift 2
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=u=rwX,go=rX -C "$folder" -cf - "$@" | gzip -9n >"$archive"
}

# sbom PROGRAM NAME reads the dependencies back from the program, so that it is about these bytes.
sbom() { auditable2cdx "$1" >"$out/$2.cdx.json" || fail "$1 does not name its dependencies"; }

# without_paths PROGRAM refuses one that names a folder of this machine.
without_paths() {
    local code=0
    grep -aoF -e "$cargo_home" -e "$CARGO_TARGET_DIR" -e "$PWD" "$1" >"$work/paths" || code=$?
    [ $code = 1 ] || fail "$1 holds $(wc -l <"$work/paths") paths of this machine, such as $(sort -u "$work/paths" | sed -n 1p)"
}

echo "==> licenses of the dependencies, about 2 minutes"
cargo fetch --locked --quiet
cargo about generate --workspace --offline --locked --fail --config manifests/about.toml manifests/about.hbs -o "$out/THIRD-PARTY-LICENSES.txt"

left_out=()
krew_platforms=
for arch in amd64 arm64; do
    machine=$([ $arch = amd64 ] && echo x86_64 || echo aarch64)
    target=$machine-unknown-linux-gnu
    if ! rustup target list --installed | grep -qx "$target"; then
        left_out+=("plugin for linux/$arch: rustup target $target is not installed")
        continue
    fi
    echo "==> plugin for linux/$arch"
    cargo auditable zigbuild --profile dist --locked -p kubectl-hibernate --target "$target.2.28"
    program=$CARGO_TARGET_DIR/$target/dist/kubectl-hibernate
    bash manifests/glibc.sh "$program" 2.28
    without_paths "$program"
    sbom "$program" "kubectl-hibernate-linux-$arch"
    mkdir -p "$work/$arch"
    cp "$program" LICENSE "$out/THIRD-PARTY-LICENSES.txt" "$work/$arch/"
    archive=kubectl-hibernate-v$version-linux-$arch.tar.gz
    pack "$out/$archive" "$work/$arch" kubectl-hibernate LICENSE THIRD-PARTY-LICENSES.txt
    krew_platforms+=" linux/$arch=$(sha256sum "$out/$archive" | cut -d ' ' -f 1)"
done
left_out+=("plugin for macOS and Windows, signatures, arm64 images: .github/workflows/release.yml, not run")

echo "==> webhook and controller"
cargo auditable build --release --locked -p hibernate-webhook -p hibernate-controller
for name in hibernate-webhook hibernate-controller; do
    without_paths "$CARGO_TARGET_DIR/release/$name"
    cp "$CARGO_TARGET_DIR/release/$name" "$work/programs/"
    sbom "$work/programs/$name" "$name"
done
THIRD_PARTY=$out/THIRD-PARTY-LICENSES.txt bash manifests/images/build.sh "$work/programs" "$out"

echo "==> chart, manifests, krew entry"
registry=${REGISTRY:-}
cp -r charts/hibernate "$work/hibernate"
sed -i "s|^  registry: \"\"|  registry: \"$registry\"|" "$work/hibernate/values.yaml"
pack "$out/hibernate-$version.tgz" "$work" hibernate
kubectl kustomize manifests | sed "s|image: hibernate-|image: ${registry:+$registry/}hibernate-|" >"$out/install.yaml"
REPOSITORY=$(value repository) HOMEPAGE=$(value homepage) python3 - "$version" $krew_platforms >"$out/hibernate.yaml" <<'PYTHON'
import os, sys
version, platforms = sys.argv[1], sys.argv[2:]
text = "".join(line for line in open("krew.yaml") if not line.lstrip().startswith("#"))
head, block = text.split("  platforms:\n")
none, repository = "NOT-PUBLISHED-YET", os.environ["REPOSITORY"]
base = f"{repository}/releases/download/v{version}" if repository else none
head = head.replace("version: VERSION", f"version: v{version}").replace("HOMEPAGE", os.environ["HOMEPAGE"] or none)
print(head + "  platforms:")
for platform in platforms:
    (system, arch), digest = platform.split("=")[0].split("/"), platform.split("=")[1]
    archive = f"kubectl-hibernate-v{version}-{system}-{arch}.tar.gz"
    filled = block.replace("os: OS", f"os: {system}").replace("arch: ARCH", f"arch: {arch}").replace("BASE/ARCHIVE", f"{base}/{archive}")
    print(filled.replace("SHA256", digest).rstrip())
PYTHON

(cd "$out" && find . -type f | sed 's|^\./||' | LC_ALL=C sort | xargs sha256sum >"$work/sums" && mv "$work/sums" SHA256SUMS)
rm -rf dist
mv "$out" dist
echo "==> dist/, of $(git rev-parse --short HEAD):"
(cd dist && ls -l | awk 'NR > 1 { printf "  %10d  %s\n", $5, $9 }')
for what in "${left_out[@]}"; do echo "==> left out: $what"; done
