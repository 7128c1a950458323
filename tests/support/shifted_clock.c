/* Shifts the system's clock, and no other, by the seconds that the file CLOCK_SHIFT holds: preloaded into a process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
    const char *path = getenv("CLOCK_SHIFT");
    char text[32] = {0};
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    read(file, text, sizeof text - 1);
    close(file);
    return atol(text);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define IS_OF_THE_SYSTEM(clock) ((clock) == CLOCK_REALTIME || (clock) == CLOCK_REALTIME_COARSE)

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = REAL(clock_gettime)(clock, now);
    if (result == 0 && IS_OF_THE_SYSTEM(clock)) now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    int result = REAL(gettimeofday)(now, zone);
    if (result == 0) now->tv_sec += shift();
    return result;
}

time_t time(time_t *there) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (there) *there = now.tv_sec;
    return now.tv_sec;
}

/* A deadline on the system's clock is one on the kernel's, which is not shifted. */
static struct timespec in_kernel(const struct timespec *deadline) {
    struct timespec found = *deadline;
    if (found.tv_sec > 1000000000) found.tv_sec -= shift();
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline) {
    struct timespec found = in_kernel(deadline);
    return REAL(pthread_cond_timedwait)(condition, mutex, &found);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *deadline) {
    struct timespec found = in_kernel(deadline);
    return REAL(sem_timedwait)(semaphore, &found);
}
