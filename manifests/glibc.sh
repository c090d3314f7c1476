#!/usr/bin/env bash
# Refuses a program that needs a newer glibc than the oldest system that it is for: glibc.sh PROGRAM VERSION
set -euo pipefail
newest=$(grep -aoE 'GLIBC_[0-9]+\.[0-9]+' "$1" | sort -uV | tail -n 1) || { echo "$1: no glibc symbol found" >&2; exit 1; }
if [ "$(printf '%s\n' "$newest" "GLIBC_$2" | sort -V | tail -n 1)" != "GLIBC_$2" ]; then
  echo "$1: needs $newest; GLIBC_$2 is the newest that its users have" >&2
  exit 1
fi
echo "$1: needs $newest, at most GLIBC_$2"
