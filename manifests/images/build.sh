#!/usr/bin/env bash
# Builds both images from programs that are built already: build.sh FOLDER OUTPUT. FOLDER holds the programs, OUTPUT gets for each an OCI archive
# and its digest. The same programs and the same commit give the same bytes.
#
# A root folder has the stripped program, Debian's C library, CA certificates, passwd and licenses. Needs buildah, on Debian 12: the programs
# link against its C library.
set -euo pipefail
programs=$(realpath "$1")
output=$(mkdir -p "$2" && realpath "$2")
cd "$(dirname "$0")"
fail() { echo "images: $*" >&2; exit 1; }
for tool in buildah apt-get dpkg-deb strip sha256sum git; do
    command -v "$tool" >/dev/null || fail "$tool is missing: on Debian, apt-get install buildah binutils git"
done
[ "$(uname -m)" = x86_64 ] || fail "images are built on x86_64 only, found $(uname -m)"
version=$(bash ../package.sh version)
revision=$(git rev-parse HEAD)
time=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=${XDG_CACHE_HOME:-${HOME:?}/.cache}/kubectl-hibernate/debian
list=${DEBIAN_PACKAGES:-debian-packages}

# Debian's packages, each by its version and hash.
mkdir -p "$packages" "$work/debian"
grep -v '^#' "$list" > "$work/list"
while read -r package package_version arch hash; do
    file=$packages/${package}_${package_version/:/%3a}_$arch.deb
    if [ ! -f "$file" ] || [ "$(sha256sum "$file" | cut -d ' ' -f 1)" != "$hash" ]; then
        echo "==> downloading $package $package_version"
        (cd "$work" && apt-get download -qq -o APT::Sandbox::User=root "$package:$arch=$package_version" 2>"$work/apt") ||
            fail "$package $package_version is gone: $(tail -n 1 "$work/apt"); put the next version into manifests/images/debian-packages"
    fi
    if [ -f "$work/$(basename "$file")" ]; then
        found=$(sha256sum "$work/$(basename "$file")" | cut -d ' ' -f 1)
        [ "$found" = "$hash" ] || fail "$package $package_version has SHA-256 $found, must be $hash"
        mv "$work/$(basename "$file")" "$file"
    fi
    dpkg-deb -x "$file" "$work/debian"
done < "$work/list"

# root NAME writes the root folder of a program.
root() {
    local root=$work/context/$1 program=hibernate-$1 from=$work/debian lib=lib/x86_64-linux-gnu
    [ -x "$programs/$program" ] || fail "$programs/$program is missing: run \`make build\`"
    bash ../glibc.sh "$programs/$program" 2.36 >/dev/null
    mkdir -p "$root"/{usr/local/bin,lib64,$lib,etc/ssl/certs,licenses,tmp}
    strip -o "$root/usr/local/bin/$program" "$programs/$program"
    # Not lib64/: that is a link to an absolute path, which is this machine's own loader.
    cp "$from/$lib/ld-linux-x86-64.so.2" "$root/lib64/"
    for library in libc.so.6 libm.so.6 libresolv.so.2 libgcc_s.so.1; do cp -L "$from/$lib/$library" "$root/$lib/"; done
    find "$from/usr/share/ca-certificates" -name '*.crt' | LC_ALL=C sort | xargs cat > "$root/etc/ssl/certs/ca-certificates.crt"
    echo 'nonroot:x:65532:65532::/:/sbin/nologin' > "$root/etc/passwd"
    echo 'nonroot:x:65532:' > "$root/etc/group"
    cp ../../LICENSE "$root/licenses/kubectl-hibernate"
    [ -z "${THIRD_PARTY:-}" ] || cp "$THIRD_PARTY" "$root/licenses/third-party"
    for package in libc6 gcc-12-base ca-certificates; do cp -L "$from/usr/share/doc/$package/copyright" "$root/licenses/$package"; done
    for license in LGPL-2.1 GPL-2 GPL-3; do cp -L "$from/usr/share/common-licenses/$license" "$root/licenses/"; done
    find "$root" -type f -exec chmod 0644 {} + -o -type d -exec chmod 0755 {} +
    chmod 1777 "$root/tmp"
    chmod 0755 "$root/usr/local/bin/$program" "$root/lib64/ld-linux-x86-64.so.2"
}

# archive NAME builds the image and packs it. Of files in a tar only names, modes and bytes count.
archive() {
    local name=hibernate-$1 layout=$work/$1
    local buildah=(buildah --root "$work/storage" --runroot "$work/run" --storage-driver vfs)
    "${buildah[@]}" bud --quiet --isolation chroot --timestamp "$time" --identity-label=false --target "$1" \
        --build-arg "VERSION=v$version" --build-arg "REVISION=$revision" --file Dockerfile --tag "$name" "$work/context" >/dev/null
    "${buildah[@]}" push --quiet --digestfile "$output/$name.digest" "$name" "oci:$layout:$name:v$version"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" --mode=u=rwX,go=rX -C "$layout" \
        -cf "$output/$name-v$version.tar" blobs index.json oci-layout
    echo "==> $name-v$version.tar $(du -h "$output/$name-v$version.tar" | cut -f 1), $(cat "$output/$name.digest")"
}

for name in webhook controller; do
    root "$name"
    archive "$name"
done
