#!/usr/bin/env bash
# Builds what the test world needs and cargo does not build, and prints the folder of each: `controlplane` (etcd, kube-apiserver and
# kube-controller-manager), `kubelet` (answers `kubectl exec`), `python` (the EC2 simulator's packages), `sdks` (of the clouds that we simulate), `openstack` (its services, and a template of a world), `zigbuild` (links the plugin against an old glibc) and `krew` (installs plugins), both for `make krew`, `helm` (installs the chart), and `release` (what `make release` needs). Each is built once and kept
# in the cache under a hash of its sources. `make` runs it next to the Rust build; the testbed holds a copy and runs it on `testbed up`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
cache=${XDG_CACHE_HOME:-${HOME:?set HOME or XDG_CACHE_HOME, for the cache folder}/.cache}/kubectl-hibernate

for tool in sha256sum flock; do
    command -v "$tool" >/dev/null || { echo "assets: $tool is missing: install coreutils and util-linux" >&2; exit 1; }
done

# The version that the programs report, which a server built from the module does not know by itself.
version='-X k8s.io/component-base/version.gitVersion=v1.36.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36'

say() { echo "assets: $*" >&2; }

# The first 16 digits of a hash over some files and texts.
fingerprint() { { for part in "$@"; do if [ -f "$part" ]; then cat "$part"; else printf '%s' "$part"; fi; printf '\0'; done; } | sha256sum | cut -c 1-16; }

# Builds into a folder unless that was done before. One process at a time: the lock ends with this shell and its children.
once() {
    local folder=$1 what=$2
    shift 2
    if [ ! -f "$folder/complete" ]; then
        mkdir -p "$folder"
        (
            flock --nonblock 9 || { say "waiting for another process that builds in $folder"; flock 9; }
            if [ ! -f "$folder/complete" ]; then
                say "building $what"
                start=$SECONDS
                "$@" "$folder" >&2 || exit 1
                touch "$folder/complete"
                say "built ${folder#"$cache/"} in $((SECONDS - start)) s"
            fi
        ) 9>"$folder/lock" || { say "not built: $what; the messages are above"; exit 1; }
    fi
    echo "$folder"
}

# go_build PACKAGE LDFLAGS NAME FOLDER
go_build() {
    command -v go >/dev/null || { say "go is missing: install Go 1.26, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver"; return 1; }
    (cd controlplane && GOTOOLCHAIN=local CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "$2" -o "$4/$3.partial" "$1") || return 1
    mv "$4/$3.partial" "$4/$3"
}

# One program that is all three, by the name it is called by.
build_controlplane() {
    go_build . "-s -w $version" controlplane "$1" || return 1
    for name in etcd kube-apiserver kube-controller-manager; do ln -sf controlplane "$1/$name"; done
}

build_kubelet() { go_build ./kubelet "-s -w" kubelet "$1"; }

# build_python REQUIREMENTS FOLDER
build_python() {
    python3 -m venv --clear "$2/venv" || { say "Python 3.10 or newer with its venv module is needed (on Debian: python3-venv)"; return 1; }
    "$2/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$1"
}

# build_openstack FOLDER
build_openstack() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { say "Python 3.11 or newer is needed for OpenStack's services"; return 1; }
    build_python clouds/openstack-requirements.txt "$1" || return 1
    say "making the databases of OpenStack's services, about half a minute"
    "$1/venv/bin/python" -W ignore -B clouds/openstack_world.py init "$1/template" 2>"$1/init.log" || { tail -n 20 "$1/init.log"; return 1; }
}

# krew and the validator of its index. An older release than the newest, and the newest that Go's module proxies have.
build_krew() {
    command -v go >/dev/null || { say "go is missing: install Go 1.26"; return 1; }
    (cd "$1" && GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-mod=mod GOBIN=$1 go install -trimpath \
        "sigs.k8s.io/krew/cmd/krew@$krew" "sigs.k8s.io/krew/cmd/validate-krew-manifest@$krew")
}
krew=v0.4.3

# Both versions in use, each as helm in a folder of its own.
build_helm() {
    command -v go >/dev/null || { say "go is missing: install Go 1.26"; return 1; }
    for version in "${helm[@]}"; do
        (cd "$1" && GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-mod=mod GOBIN=$1/${version%%.*} go install -trimpath -ldflags "-s -w" \
            "helm.sh/helm/${version%%.*}/cmd/helm@$version") || return 1
    done
}
helm=(v3.22.0 v4.3.1)

# What a release is made with, beside zig: programs that name their dependencies, their SBOM, the licenses.
build_release() {
    local tool
    for tool in "${release[@]}"; do
        env -u CARGO_TARGET_DIR -u RUSTFLAGS -u RUSTC_WORKSPACE_WRAPPER -u MAKEFLAGS -u MFLAGS \
            cargo install --quiet --locked --root "$1" --features "${tool#*:}" "${tool%:*}" || return 1
    done
}
release=(cargo-auditable@0.7.7: auditable2cdx@0.1.0: cargo-about@0.9.3:cli)

go=(controlplane/go.mod controlplane/go.sum)
for asset in "$@"; do
    case $asset in
        controlplane) once "$cache/controlplane/$(fingerprint controlplane/main.go "${go[@]}" "$version")" \
            "etcd, kube-apiserver and kube-controller-manager 1.36, about 6 minutes and 2.3 GB of memory" build_controlplane ;;
        kubelet) once "$cache/kubelet/$(fingerprint controlplane/kubelet/main.go "${go[@]}")" "the test kubelet" build_kubelet ;;
        python) once "$cache/python/$(fingerprint clouds/requirements.txt)" \
            "the EC2 simulator's Python environment, about half a minute and 140 MB" build_python clouds/requirements.txt ;;
        sdks) once "$cache/sdks/$(fingerprint clouds/sdk-requirements.txt)" \
            "the SDKs of GCP, Azure and IBM Cloud, about a minute and 250 MB" build_python clouds/sdk-requirements.txt ;;
        openstack) once "$cache/openstack/$(fingerprint clouds/openstack-requirements.txt clouds/openstack_world.py)" \
            "keystone, placement, glance, neutron and nova, about two minutes and 600 MB" build_openstack ;;
        zigbuild) once "$cache/zigbuild/$(fingerprint ../manifests/krew-requirements.txt)" \
            "zig and cargo-zigbuild, 600 MB" build_python ../manifests/krew-requirements.txt ;;
        krew) once "$cache/krew/$krew" "krew and its validator, about half a minute" build_krew ;;
        helm) once "$cache/helm/$(fingerprint "${helm[@]}")" "Helm ${helm[*]}, about 6 minutes" build_helm ;;
        release) once "$cache/release-tools/$(fingerprint "${release[@]}")" "${release[*]}, about 4 minutes" build_release ;;
        *) say "no asset $asset: controlplane, kubelet, python, sdks, openstack, zigbuild, krew, helm, release"; exit 2 ;;
    esac
done
