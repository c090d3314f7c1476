#!/usr/bin/env bash
# Runs both images of a folder on the test world as Pods run them: test.sh FOLDER. Each program in its image's root, read-only, under a user ID as
# OpenShift assigns one, with the token of its service account. Needs rights to mount and to change the root (root).
set -euo pipefail
cd "$(dirname "$0")/../.."

images=$(realpath "$1")
fail() { echo "images: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "the test of the images changes the root folder: run it as root"
work=$(mktemp -d)
world=$work/world
finish() { bin/testbed down --state "$world" >/dev/null 2>&1 || true; rm -rf "$work"; }
trap finish EXIT

# unpack NAME writes the image's root folder, and a program that runs it there.
unpack() {
    local name=hibernate-$1 root=$work/root-$1
    mkdir -p "$root" "$work/layout-$1" "$work/bin"
    tar -xf "$images/$name"-v*.tar -C "$work/layout-$1"
    python3 - "$work/layout-$1" "$root" <<'PYTHON'
import json, subprocess, sys
layout, root = sys.argv[1:]
read = lambda digest: f"{layout}/blobs/{digest.replace(':', '/')}"
manifest = json.load(open(read(json.load(open(f"{layout}/index.json"))["manifests"][0]["digest"])))
config = json.load(open(read(manifest["config"]["digest"])))["config"]
assert config["User"] == "65532:65532" and config["Labels"]["org.opencontainers.image.version"].startswith("v"), config
assert not any(label.startswith("io.buildah") for label in config["Labels"]), config
for layer in manifest["layers"]:
    subprocess.run(["tar", "-xzf", read(layer["digest"]), "-C", root], check=True)
PYTHON
    mkdir -p "$root/pod"
    # What a Pod mounts: the credentials, and a folder in memory for --state-dir. Arguments that name them are moved there.
    cat > "$work/bin/$name" <<WRAPPER
#!/usr/bin/env bash
set -eu
arguments=()
for argument; do
    case \$argument in
        *.kubeconfig) credentials=\$argument; argument=/pod/kubeconfig ;;
        $world/state/*) argument=/pod/state ;;
    esac
    arguments+=("\$argument")
done
export credentials
exec unshare --mount bash -eu -c '
    mount --bind $root $root
    mount -t tmpfs tmpfs $root/pod
    mkdir $root/pod/state
    cp "\$credentials" $root/pod/kubeconfig
    chown -R 1000680000:1000680000 $root/pod
    mount -o remount,bind,ro $root
    exec env -i MALLOC_ARENA_MAX=2 $(command -v chroot) --userspec=1000680000:1000680000 $root /usr/local/bin/$name "\$@"' bash "\${arguments[@]}"
WRAPPER
    chmod +x "$work/bin/$name"
}

# refuses LIST MESSAGE: a build with this list of packages stops with the message.
refuses() {
    local output
    output=$(DEBIAN_PACKAGES=$1 bash manifests/images/build.sh bin "$work/none" 2>&1) && fail "built from $1"
    [[ $output == *"$2"* ]] || fail "$output, without: $2"
}
sed 's/^\(ca-certificates .*\) .*/\1 0123/' manifests/images/debian-packages >"$work/hash"
refuses "$work/hash" "$(sed -n 's/^\(ca-certificates [^ ]*\) .* \(.*\)/\1 has SHA-256 \2, must be 0123/p' manifests/images/debian-packages)"
sed 's/^ca-certificates [^ ]*/ca-certificates 19990101/' manifests/images/debian-packages >"$work/gone"
refuses "$work/gone" "ca-certificates 19990101 is gone"

for name in webhook controller; do unpack "$name"; done
echo "==> starting a world whose programs run in their images"
HIBERNATE_BIN=$work/bin bin/testbed up --state "$world" >"$work/up.log" 2>&1 || { cat "$work/up.log"; fail "the world did not start"; }
eval "$(bin/testbed env --state "$world")"
export PATH=$PWD/bin:$PATH

for name in webhook controller; do
    pid=$(pgrep -f "^/usr/local/bin/hibernate-$name .*--kubeconfig /pod/kubeconfig" | head -n 1) || fail "hibernate-$name does not run"
    [ "$(stat -c %u "/proc/$pid")" = 1000680000 ] || fail "hibernate-$name runs as another user"
    touch "/proc/$pid/cwd/etc/passwd.new" 2>/dev/null && fail "the root of hibernate-$name can be written"
    port=$(tr '\0' '\n' <"/proc/$pid/cmdline" | grep -A 1 -x -e "--listen$([ "$name" = webhook ] && echo -plain)" | tail -n 1)
    [ "$(curl -fsS "http://$port/readyz")" = ok ] || fail "/readyz of hibernate-$name"
    echo "==> hibernate-$name is ready, as user 1000680000 on a read-only root"
done
bundles=$(kubectl get validatingwebhookconfiguration hibernate-webhook -o jsonpath='{.webhooks[*].clientConfig.caBundle}' | wc -w)
[ "$bundles" -ge 3 ] || fail "caBundle is written into $bundles rules"
kubectl annotate clusterdeployment demo hibernate.sh/protected=true >/dev/null
code=0
kubectl-hibernate demo --yes 2>"$work/denied" || code=$?
{ [ "$code" = 3 ] && grep -q 'is protected' "$work/denied"; } || fail "a protected cluster was not refused: exit code $code, $(cat "$work/denied")"
kubectl annotate clusterdeployment demo hibernate.sh/protected- >/dev/null
kubectl-hibernate demo --wait --timeout 3m
echo "==> the images refuse what they must and put a cluster to sleep"
