/* Preloaded into a program, moves its wall clock by the seconds in the file that CLOCK_SHIFT names. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result != 0 || clock != CLOCK_REALTIME) {
        return result;
    }
    FILE *file = fopen(getenv("CLOCK_SHIFT"), "r");
    if (file != NULL) {
        long seconds = 0;
        if (fscanf(file, "%ld", &seconds) == 1) {
            at->tv_sec += seconds;
        }
        fclose(file);
    }
    return 0;
}
