#!/usr/bin/env bash
# Prints a value of [workspace.package] in Cargo.toml, or nothing: package.sh KEY
set -euo pipefail
sed -n '/^\[workspace\.package\]/,/^\[/ s/^'"$1"' = "\(.*\)"$/\1/p' "$(dirname "$0")/../Cargo.toml"
