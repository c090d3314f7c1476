//! Runs a program as OpenShift's restricted-v2 runs a container: under a UID without an account, without capabilities
//! and a home, with every file system read-only. Needs no root: the caller's account has another UID in user and mount
//! namespaces of its own.

/// Arguments of `unshare` in front of the program and its own. The program keeps the process ID.
pub const UNSHARE: [&str; 7] = ["--user", "--map-root-user", "--mount", "bash", "-euc", SCRIPT, UID];

/// Arguments of `unshare` in front of a file, a program and its own: the program sees the file as `/etc/hosts`. The
/// program keeps the process ID.
pub const HOSTS: [&str; 6] =
    ["--user", "--map-root-user", "--mount", "bash", "-euc", r#"mount --bind "$0" /etc/hosts; exec "$@""#];

/// One of the range that OpenShift gives to a namespace.
pub const UID: &str = "1000680000";

/// Makes every mount read-only, proves it, and becomes the program. `/proc` stays as it is: a UID map is written there.
const SCRIPT: &str = r#"
mount --make-rprivate /
cut -d ' ' -f 5 /proc/self/mountinfo | sort -u | while read -r mount; do
    case $mount in /proc | /proc/*) ;; *) mount -o remount,bind,ro "$mount" ;; esac
done
for folder in / /tmp /dev/shm "$PWD"; do
    if touch "$folder/writable" 2>/dev/null; then echo "$folder is not read-only" >&2; exit 126; fi
done
cd /
exec unshare --user --map-user="$0" --map-group=0 env -u HOME -u XDG_CACHE_HOME -u KUBECACHEDIR "$@"
"#;
