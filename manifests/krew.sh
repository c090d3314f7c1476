#!/usr/bin/env bash
# Builds the plugin's krew archive for this platform, fills krew.yaml in, and puts both through krew itself: the validator
# of the krew index, then an installation from the archive into a folder of its own.
#
# On Linux it links against glibc 2.28, which RHEL 8 has, with zig as the linker.
#
# Needs krew (kubectl-krew or krew) and validate-krew-manifest, both from the krew project, on PATH or named by $KREW and
# $VALIDATE_KREW_MANIFEST.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "krew: $*" >&2; exit 1; }
find_program() { # NAME... prints the first one that is on PATH
  local name
  for name in "$@"; do command -v "$name" && return; done
  return 1
}

case $(uname -s) in
  Linux) os=linux ;;
  Darwin) os=darwin ;;
  *) fail "$(uname -s) is not a platform that this script builds on" ;;
esac
case $(uname -m) in
  x86_64 | amd64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) fail "$(uname -m) is not an architecture that krew knows" ;;
esac
version=v$(sed -n '/^\[workspace\.package\]/,/^\[/ s/^version = "\(.*\)"$/\1/p' Cargo.toml)
[ "$version" != v ] || fail "Cargo.toml names no version under [workspace.package]"
archive=kubectl-hibernate-$version-$os-$arch.tar.gz
target=${CARGO_TARGET_DIR:-target}
glibc=2.28
sha256() { if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1; }

echo "==> building $archive"
if [ $os = linux ]; then
  tools=$(bash tests/assets.sh zigbuild)/venv/bin
  triple=$(uname -m)-unknown-linux-gnu
  PATH=$tools:$PATH cargo zigbuild --profile dist --locked -p kubectl-hibernate --target "$triple.$glibc"
  built=$target/$triple/dist
  bash manifests/glibc.sh "$built/kubectl-hibernate" "$glibc"
else
  cargo build --profile dist --locked -p kubectl-hibernate
  built=$target/dist
fi
mkdir -p dist
tar -C "$built" -czf "dist/$archive" kubectl-hibernate -C "$PWD" LICENSE
hash=$(sha256 "dist/$archive")

# The comments of the template are about the template.
sed -e '/^ *#/d' -e "s|VERSION\$|$version|" -e "s|os: OS\$|os: $os|" -e "s|arch: ARCH\$|arch: $arch|" \
  -e "s|/ARCHIVE\$|/$archive|" -e "s|SHA256\$|$hash|" krew.yaml >dist/hibernate.yaml
echo "==> wrote dist/hibernate.yaml and dist/$archive ($(du -h "dist/$archive" | cut -f1), sha256 $hash)"

validate=${VALIDATE_KREW_MANIFEST:-$(find_program validate-krew-manifest)} \
  || fail "validate-krew-manifest is missing: it is cmd/validate-krew-manifest of the krew project; put it on PATH"
krew=${KREW:-$(find_program kubectl-krew krew)} || fail "krew is missing: install it, or name it by \$KREW"

echo "==> validating dist/hibernate.yaml"
# Its own installation would download from uri, and nothing is published: it is done below, from the archive.
"$validate" -manifest dist/hibernate.yaml -skip-install

echo "==> installing from the archive"
KREW_ROOT=$(mktemp -d)
export KREW_ROOT
trap 'rm -rf "$KREW_ROOT"' EXIT
"$krew" install --manifest=dist/hibernate.yaml --archive="dist/$archive"
installed=$KREW_ROOT/store/hibernate/$version
[ -f "$installed/LICENSE" ] || fail "the installed plugin has no LICENSE, which the krew index demands"
PATH=$KREW_ROOT/bin:$PATH kubectl hibernate version
echo "==> krew: ok"
