#!/usr/bin/env bash
# Builds the plugin's krew archive for this platform, fills krew.yaml in, and puts both through krew itself: the validator
# of the krew index with its installation, then an installation from an index of its own, what a user sets up, an upgrade,
# and the removal.
#
# On Linux it links against glibc 2.28, which RHEL 8 has, with zig as the linker.
#
# Needs git and kubectl. krew and its validator are built, or named by $KREW and $VALIDATE_KREW_MANIFEST.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "krew: $*" >&2; exit 1; }
for tool in git kubectl python3; do command -v "$tool" >/dev/null || fail "$tool is missing"; done
# package KEY prints a value of [workspace.package], or nothing.
package() { bash manifests/package.sh "$1"; }

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
version=v$(package version)
unpublished=NOT-PUBLISHED-YET
homepage=$(package homepage)
repository=$(package repository)
releases=${repository:+$repository/releases/download/$version}
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

# manifest VERSION BASE FILE fills the template in. Its comments are about the template.
manifest() {
  sed -e '/^ *#/d' -e "s|VERSION\$|$1|" -e "s|HOMEPAGE\$|${homepage:-$unpublished}|" -e "s|os: OS\$|os: $os|" \
    -e "s|arch: ARCH\$|arch: $arch|" -e "s|BASE/ARCHIVE\$|$2/$archive|" -e "s|SHA256\$|$hash|" krew.yaml >"$3"
}
manifest "$version" "${releases:-$unpublished}" dist/hibernate.yaml
echo "==> wrote dist/hibernate.yaml and dist/$archive ($(du -h "dist/$archive" | cut -f1), sha256 $hash)"

tools=$(bash tests/assets.sh krew)
krew=${KREW:-$tools/krew}
validate=${VALIDATE_KREW_MANIFEST:-$tools/validate-krew-manifest}
work=$(mktemp -d)
# Our own index in place of krew's, and no question for a newer krew.
export KREW_ROOT=$work/krew KREW_DEFAULT_INDEX_URI=$work/index KREW_NO_UPGRADE_CHECK=1
mkdir -p "$work/tools" "$work/manifest" "$work/index/plugins"
ln -s "$(realpath "$krew")" "$work/tools/kubectl-krew" # the validator installs by `kubectl krew`
PATH=$work/tools:$KREW_ROOT/bin:$PATH
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$work"' EXIT

# Nothing is published: the archive is served on loopback.
python3 -u -m http.server --bind 127.0.0.1 --directory dist 0 >"$work/server.log" 2>&1 &
server=$!
for _ in $(seq 50); do
  port=$(sed -n 's/.* port \([0-9]*\) .*/\1/p' "$work/server.log")
  [ -z "$port" ] || break
  sleep 0.1
done
[ -n "$port" ] || fail "no local web server: $(cat "$work/server.log")"
local=http://127.0.0.1:$port

echo "==> validating, with the installation"
manifest "$version" "$local" "$work/manifest/hibernate.yaml"
"$validate" -manifest "$work/manifest/hibernate.yaml"

echo "==> installing from an index, and setting up"
index() { # VERSION puts a version into the index
  manifest "$1" "$local" "$work/index/plugins/hibernate.yaml"
  git -C "$work/index" add . && git -C "$work/index" -c user.name=krew -c user.email=krew@localhost commit -qm "$1"
}
git init -q -b main "$work/index"
index "$version"
kubectl krew install hibernate
[ -f "$KREW_ROOT/store/hibernate/$version/LICENSE" ] || fail "the installed plugin has no LICENSE, which the krew index demands"
works() {
  kubectl hibernate version
  kubectl fdb recover process-groups --help >/dev/null || fail "$1: kubectl fdb recover does not run the plugin"
  kubectl __complete hibernate res 2>/dev/null | grep -q '^resume' || fail "$1: kubectl completes nothing"
}
kubectl hibernate completion --install
kubectl hibernate install-alias
works "after the installation"

echo "==> upgrading"
next=${version%.*}.$((${version##*.} + 1))
index "$next"
kubectl krew upgrade hibernate
[ ! -e "$KREW_ROOT/store/hibernate/$version" ] || fail "krew has kept $version"
works "after the upgrade"

echo "==> removing"
kubectl hibernate install-alias --remove
kubectl hibernate completion --remove
kubectl krew uninstall hibernate
left=$(ls "$KREW_ROOT/bin")
[ -z "$left" ] || fail "left in krew's folder on PATH: $left"
echo "==> krew: ok"
