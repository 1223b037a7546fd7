/* A stand-in for libnvidia-ml.so.1: enough of NVML for the sampler, told what to answer by a text file.
 *
 * NVML_STAND_IN names the file; it is read again whenever it changed. One setting a line:
 *
 *     <gpu index or *> <key> <value>
 *
 * Later lines win; a line for one GPU counts like one for all. Keys:
 *     gpus N                    number of GPUs
 *     error.<call> CODE         that call (or field: power_instant, power_average, energy, nvlink) returns CODE
 *     latency_us.<call> N       that call sleeps first (PCIe sleeps 20,000 us unless told)
 *     lost_after N              from the N-th call on, the GPU answers GPU_IS_LOST
 *     serialise 1               sleeping calls exclude each other, as a driver with one lock would
 *     power_instant_mw, power_average_mw, power_ripple_mw, power_refresh_us
 *     energy_start_mj, energy_rate_mw, energy_refresh_us, energy_wrap_mj, energy_reset_after (calls)
 *     util, memory_total, memory_used, sm_mhz, sm_max_mhz, memory_mhz, celsius, throttle, pcie_kb, nvlink_kib,
 *     limit_mw, limit_default_mw, app_mhz, app_default_mhz, mig, arch, cc_major, cc_minor
 *     pids 12,34                compute processes; memory_of_pids: bytes that each of them uses
 *     ecc_corrected, ecc_uncorrected   memory errors so far (error.ecc CODE: none are counted)
 *     xid CODE                  an Xid error, each time the number changes (xid_supported 0: events are not supported)
 *     mig_instances N           MIG instances, with mig 1
 *
 * Times of a history are microseconds since origin_us (a monotonic instant; else the first initialisation):
 *     history FILE              lines "milliseconds milliwatts", played one after the other; the last one holds
 *     history_loop 1            after the last line comes the first
 *     power_window_us N         instant power is the mean of the last N us before its refresh (0: the value then)
 *     silent_from_us, silent_to_us   power and energy return UNKNOWN between
 *     energy_reset_us           the counter begins again at 0 there
 *     limit_at_us, limit_then_mw     the limit from then on
 *     clock_at_us, clock_then_mhz    the SM clock from then on
 *     lost_at_us, back_at_us         the GPU answers GPU_IS_LOST between; without back_at_us, for good
 *
 * NVML_STAND_IN_CPU names a file whose first 8 bytes then hold the nanoseconds of CPU spent inside these calls so far.
 *
 * Compile with -DWITHOUT_FIELD_VALUES for a library as old as that. Struct layouts and numbers: nvml.h.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_SETTINGS 512
#define MAX_GPUS 64
enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };

typedef struct { int gpu; char key[48]; char text[160]; } setting_t;
typedef void *device_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory2_t;
typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
typedef union { double d; unsigned int ui; unsigned long ul; unsigned long long ull; signed long long sll; } value_t;
typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, result;
    value_t value;
} field_value_t;

static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static setting_t settings[MAX_SETTINGS];
static int setting_count;
static struct timespec loaded_mtime;
static off_t loaded_size = -1;
static ino_t loaded_inode;
static unsigned long long calls[MAX_GPUS];
static uint64_t origin_us;
static int initialised;

#define MAX_PIECES 4096
typedef struct { int count; uint64_t end_us[MAX_PIECES]; double mw[MAX_PIECES], joined[MAX_PIECES]; char path[160]; } history_t;
static history_t *histories[MAX_GPUS];

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static uint64_t *spent_ns; /* in shared memory, where it is asked for */

static uint64_t cpu_ns(void) {
    struct timespec t;
    if (!spent_ns || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void spent_since(const uint64_t *begin) {
    if (spent_ns && *begin) __atomic_add_fetch(spent_ns, cpu_ns() - *begin, __ATOMIC_RELAXED);
}
#define COUNTED uint64_t cpu_begin __attribute__((cleanup(spent_since))) = cpu_ns(); (void)cpu_begin

static void count_cpu(void) {
    const char *path = getenv("NVML_STAND_IN_CPU");
    int file = path && !spent_ns ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (file < 0) return;
    if (ftruncate(file, sizeof *spent_ns) == 0) {
        void *at = mmap(NULL, sizeof *spent_ns, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at != MAP_FAILED) spent_ns = at;
    }
    close(file);
}

/* Callers hold state_lock. */
static void reload(void) {
    const char *path = getenv("NVML_STAND_IN");
    struct stat s;
    if (!path || stat(path, &s) != 0) return;
    if (s.st_size == loaded_size && s.st_ino == loaded_inode && s.st_mtim.tv_sec == loaded_mtime.tv_sec &&
        s.st_mtim.tv_nsec == loaded_mtime.tv_nsec)
        return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char line[256], gpu[16];
    int n = 0;
    while (n < MAX_SETTINGS && fgets(line, sizeof line, file)) {
        setting_t *t = &settings[n];
        if (sscanf(line, "%15s %47s %159s", gpu, t->key, t->text) != 3) continue;
        t->gpu = gpu[0] == '*' ? -1 : atoi(gpu);
        n++;
    }
    fclose(file);
    setting_count = n;
    loaded_mtime = s.st_mtim;
    loaded_size = s.st_size;
    loaded_inode = s.st_ino;
}

static const char *text_of(int gpu, const char *key) {
    for (int i = setting_count - 1; i >= 0; i--)
        if ((settings[i].gpu == -1 || settings[i].gpu == gpu) && strcmp(settings[i].key, key) == 0) return settings[i].text;
    return NULL;
}

static long long number(int gpu, const char *key, long long otherwise) {
    const char *text = text_of(gpu, key);
    return text ? strtoll(text, NULL, 0) : otherwise;
}

/* Locked look-up for the bodies of calls. */
static long long get(int gpu, const char *key, long long otherwise) {
    pthread_mutex_lock(&state_lock);
    long long found = number(gpu, key, otherwise);
    pthread_mutex_unlock(&state_lock);
    return found;
}

/* Counts the call, sleeps as told, and returns what the call is to return before it does anything. */
static int enter(int gpu, const char *call, long long latency_us) {
    char key[64];
    pthread_mutex_lock(&state_lock);
    reload();
    if (!initialised) {
        pthread_mutex_unlock(&state_lock);
        return UNINITIALIZED;
    }
    unsigned long long nth = gpu >= 0 ? ++calls[gpu] : 0;
    long long lost_after = number(gpu, "lost_after", -1);
    snprintf(key, sizeof key, "latency_us.%s", call);
    latency_us = number(gpu, key, latency_us);
    snprintf(key, sizeof key, "error.%s", call);
    long long error = number(gpu, key, OK);
    long long serialise = number(-1, "serialise", 0);
    long long lost_at = number(gpu, "lost_at_us", -1), back_at = number(gpu, "back_at_us", -1);
    long long at = (long long)(now_us() - origin_us);
    pthread_mutex_unlock(&state_lock);
    if (serialise) pthread_mutex_lock(&driver_lock);
    if (latency_us > 0) {
        struct timespec t = {latency_us / 1000000, (latency_us % 1000000) * 1000};
        nanosleep(&t, NULL);
    }
    if (serialise) pthread_mutex_unlock(&driver_lock);
    if (gpu >= 0 && lost_after >= 0 && nth >= (unsigned long long)lost_after) return LOST;
    if (gpu >= 0 && lost_at >= 0 && at >= lost_at && (back_at < 0 || at < back_at)) return LOST;
    return (int)error;
}

/* Handles: GPU n is n + 1, its MIG instance i is 1000 + 10 n + i. */
static int is_mig(device_t device) { return (intptr_t)device >= 1000; }
static int index_of(device_t device) {
    return is_mig(device) ? (int)(((intptr_t)device - 1000) / 10) : (int)((intptr_t)device - 1);
}

static uint64_t refreshes(int gpu, const char *key, long long otherwise, uint64_t *at_us) {
    uint64_t period = (uint64_t)get(gpu, key, otherwise);
    if (period == 0) period = 1;
    uint64_t now = now_us(), n = now > origin_us ? (now - origin_us) / period : 0;
    *at_us = n * period;
    return n;
}

/* The history of a GPU, read once; NULL when it has none. joined: milliwatt x microseconds up to the piece's end. */
static history_t *history_of(int gpu) {
    pthread_mutex_lock(&state_lock);
    const char *path = text_of(gpu, "history");
    if (path && (!histories[gpu] || strcmp(histories[gpu]->path, path) != 0)) {
        history_t *h = calloc(1, sizeof *h);
        FILE *file = fopen(path, "r");
        double ms, mw, at = 0, sum = 0;
        while (file && h->count < MAX_PIECES && fscanf(file, "%lf %lf", &ms, &mw) == 2) {
            at += ms * 1000;
            sum += ms * 1000 * mw;
            h->end_us[h->count] = (uint64_t)at;
            h->mw[h->count] = mw;
            h->joined[h->count++] = sum;
        }
        if (file) fclose(file);
        snprintf(h->path, sizeof h->path, "%s", path);
        histories[gpu] = h;
    }
    history_t *found = path && histories[gpu]->count ? histories[gpu] : NULL;
    pthread_mutex_unlock(&state_lock);
    return found;
}

/* Milliwatt x microseconds from the origin to `at`. */
static double joined_until(int gpu, const history_t *h, double at) {
    double whole = (double)h->end_us[h->count - 1], sum = 0, before = 0, begin = 0;
    if (at <= 0) return 0;
    if (at > whole && get(gpu, "history_loop", 0)) {
        double rounds = (double)(uint64_t)(at / whole);
        sum = rounds * h->joined[h->count - 1];
        at -= rounds * whole;
    }
    for (int i = 0; i < h->count; i++) {
        if (at < (double)h->end_us[i]) return sum + before + (at - begin) * h->mw[i];
        before = h->joined[i];
        begin = (double)h->end_us[i];
    }
    return sum + before + (at - begin) * h->mw[h->count - 1];
}

static double mean_mw(int gpu, const history_t *h, double from, double to) {
    if (from < 0) from = 0;
    if (to <= from) to = from + 1;
    return (joined_until(gpu, h, to) - joined_until(gpu, h, from)) / (to - from);
}

static int silent(int gpu) {
    long long from = get(gpu, "silent_from_us", -1);
    long long now = (long long)(now_us() - origin_us);
    return from >= 0 && now >= from && now < get(gpu, "silent_to_us", from);
}

static unsigned int power_mw(int gpu, const char *key, long long otherwise) {
    const history_t *h = history_of(gpu);
    if (h) {
        uint64_t then;
        refreshes(gpu, "power_refresh_us", 100000, &then);
        if (strcmp(key, "power_average_mw") == 0) return (unsigned int)mean_mw(gpu, h, (double)then - 1e6, (double)then);
        double window = (double)get(gpu, "power_window_us", 0);
        return (unsigned int)mean_mw(gpu, h, (double)then - (window > 0 ? window : 1), (double)then);
    }
    uint64_t at;
    uint64_t n = refreshes(gpu, "power_refresh_us", 100000, &at);
    return (unsigned int)(get(gpu, key, otherwise) + (long long)(n % 5) * get(gpu, "power_ripple_mw", 10));
}

static unsigned long long energy_mj(int gpu) {
    uint64_t at;
    refreshes(gpu, "energy_refresh_us", 100000, &at);
    unsigned long long counted = (unsigned long long)((double)get(gpu, "energy_rate_mw", 300000) * (double)at / 1e6);
    const history_t *h = history_of(gpu);
    if (h) counted = (unsigned long long)(joined_until(gpu, h, (double)at) / 1e6);
    long long reset_us = get(gpu, "energy_reset_us", -1);
    if (h && reset_us >= 0 && (long long)at >= reset_us)
        return counted - (unsigned long long)(joined_until(gpu, h, (double)reset_us) / 1e6);
    long long reset_after = get(gpu, "energy_reset_after", -1), wrap = get(gpu, "energy_wrap_mj", 0);
    unsigned long long value = (unsigned long long)get(gpu, "energy_start_mj", 1000000) + counted;
    pthread_mutex_lock(&state_lock);
    int reset = reset_after >= 0 && calls[gpu] >= (unsigned long long)reset_after;
    pthread_mutex_unlock(&state_lock);
    if (reset) value = counted;
    return wrap > 0 ? value % (unsigned long long)wrap : value;
}

#define ENTER(call, latency)                          \
    COUNTED;                                          \
    int gpu = index_of(device);                       \
    int code = enter(gpu, call, latency);             \
    if (code != OK) return code

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    pthread_mutex_lock(&state_lock);
    initialised = 1;
    count_cpu();
    if (origin_us == 0) origin_us = now_us();
    pthread_mutex_unlock(&state_lock);
    int code = enter(-1, "init", 0);
    origin_us = (uint64_t)get(-1, "origin_us", (long long)origin_us);
    if (code != OK) initialised = 0;
    return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stand-in"; }

int nvmlSystemGetDriverVersion(char *text, unsigned int length) {
    snprintf(text, length, "550.54.15-stand-in");
    return enter(-1, "driver", 0);
}
int nvmlSystemGetNVMLVersion(char *text, unsigned int length) {
    snprintf(text, length, "12.550.54.15");
    return enter(-1, "version", 0);
}
int nvmlDeviceGetCount_v2(unsigned int *count) {
    int code = enter(-1, "count", 0);
    *count = (unsigned int)get(-1, "gpus", 1);
    return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *device) {
    if ((long long)index >= get(-1, "gpus", 1) || index >= MAX_GPUS) return INVALID_ARGUMENT;
    *device = (device_t)(intptr_t)(index + 1);
    return enter((int)index, "handle", 0);
}
int nvmlDeviceGetUUID(device_t device, char *text, unsigned int length) {
    ENTER("uuid", 0);
    if (is_mig(device)) {
        snprintf(text, length, "MIG-00000000-0000-4000-8000-%06d%06d", gpu, (int)((intptr_t)device % 10));
        return OK;
    }
    snprintf(text, length, "GPU-00000000-0000-4000-8000-%012d", gpu);
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device) {
    int gpu;
    if (sscanf(uuid, "GPU-00000000-0000-4000-8000-%d", &gpu) != 1) return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2((unsigned int)gpu, device);
}
int nvmlDeviceGetName(device_t device, char *text, unsigned int length) {
    ENTER("name", 0);
    snprintf(text, length, "Stand-in H100");
    return OK;
}
int nvmlDeviceGetMinorNumber(device_t device, unsigned int *minor) {
    ENTER("minor", 0);
    *minor = (unsigned int)gpu;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *pci) {
    ENTER("pci", 0);
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned int)(gpu + 1);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", gpu + 1);
    return OK;
}
int nvmlDeviceGetArchitecture(device_t device, unsigned int *architecture) {
    ENTER("architecture", 0);
    *architecture = (unsigned int)get(gpu, "arch", 9);
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(device_t device, int *major, int *minor) {
    ENTER("capability", 0);
    *major = (int)get(gpu, "cc_major", 9);
    *minor = (int)get(gpu, "cc_minor", 0);
    return OK;
}
int nvmlDeviceGetMigMode(device_t device, unsigned int *current, unsigned int *pending) {
    ENTER("mig", 0);
    *current = *pending = (unsigned int)get(gpu, "mig", 0);
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned int *count) {
    ENTER("mig_count", 0);
    *count = 7;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned int index, device_t *mig) {
    ENTER("mig_handle", 0);
    *mig = (device_t)(intptr_t)(1000 + 10 * gpu + (int)index);
    return (long long)index < get(gpu, "mig_instances", 0) ? OK : NOT_FOUND;
}
int nvmlDeviceGetGpuInstanceId(device_t device, unsigned int *id) {
    ENTER("gpu_instance", 0);
    *id = (unsigned int)((intptr_t)device % 10) + 7;
    return OK;
}
int nvmlDeviceGetComputeInstanceId(device_t device, unsigned int *id) {
    ENTER("compute_instance", 0);
    *id = 0;
    return OK;
}
typedef struct { device_t device; unsigned long long type, data; unsigned int gi, ci; } event_t;
typedef struct { int listening[MAX_GPUS]; long long last_xid[MAX_GPUS]; } events_t; /* each set is told of each */
int nvmlEventSetCreate(events_t **set) {
    *set = calloc(1, sizeof **set);
    return enter(-1, "event_set", 0);
}
int nvmlEventSetFree(events_t *set) {
    free(set);
    return OK;
}
int nvmlDeviceGetSupportedEventTypes(device_t device, unsigned long long *types) {
    ENTER("event_types", 0);
    *types = get(gpu, "xid_supported", 1) ? 0xBu : 0u;
    return OK;
}
int nvmlDeviceRegisterEvents(device_t device, unsigned long long types, events_t *set) {
    ENTER("register_events", 0);
    set->listening[gpu] = types != 0;
    set->last_xid[gpu] = get(gpu, "xid", 0);
    return OK;
}
int nvmlEventSetWait_v2(events_t *set, event_t *event, unsigned int timeout_ms) {
    COUNTED;
    for (uint64_t end = now_us() + timeout_ms * 1000ull; now_us() < end;) {
        int code = enter(-1, "event_wait", 100000);
        if (code != OK) return code;
        for (int gpu = 0; gpu < MAX_GPUS; gpu++) /* at once, and whatever the others have to tell */
            if (set->listening[gpu] && get(gpu, "lost_after", -1) == 0) return LOST;
        for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
            long long xid = set->listening[gpu] ? get(gpu, "xid", 0) : 0;
            if (xid == 0 || xid == set->last_xid[gpu]) continue;
            set->last_xid[gpu] = xid;
            *event = (event_t){(device_t)(intptr_t)(gpu + 1), 8, (unsigned long long)xid, 0xFFFFFFFFu, 0xFFFFFFFFu};
            return OK;
        }
    }
    return TIMEOUT;
}
int nvmlDeviceGetMemoryInfo(device_t device, memory_t *memory) {
    ENTER("memory", 0);
    memory->total = (unsigned long long)get(gpu, "memory_total", 85899345920LL);
    memory->used = (unsigned long long)get(gpu, "memory_used", 1073741824LL);
    memory->free = memory->total - memory->used;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(device_t device, memory2_t *memory) {
    ENTER("memory2", 0);
    memory_t plain;
    code = nvmlDeviceGetMemoryInfo(device, &plain);
    memory->total = plain.total;
    memory->used = plain.used;
    memory->reserved = 0;
    memory->free = plain.free;
    return code;
}
int nvmlDeviceGetPowerManagementLimitConstraints(device_t device, unsigned int *low, unsigned int *high) {
    ENTER("limits", 0);
    *low = 200000;
    *high = 700000;
    return OK;
}
int nvmlDeviceGetPowerManagementDefaultLimit(device_t device, unsigned int *limit) {
    ENTER("limit_default", 0);
    *limit = (unsigned int)get(gpu, "limit_default_mw", 700000);
    return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(device_t device, unsigned int *limit) {
    ENTER("limit", 0);
    long long at = get(gpu, "limit_at_us", -1);
    int later = at >= 0 && (long long)(now_us() - origin_us) >= at;
    *limit = (unsigned int)get(gpu, later ? "limit_then_mw" : "limit_mw", 700000);
    return OK;
}
int nvmlDeviceGetPowerUsage(device_t device, unsigned int *power) {
    ENTER("power", 0);
    *power = power_mw(gpu, "power_average_mw", 310000);
    return silent(gpu) ? UNKNOWN : OK;
}
int nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *energy) {
    ENTER("energy_call", 0);
    *energy = energy_mj(gpu);
    return silent(gpu) ? UNKNOWN : OK;
}
int nvmlDeviceGetUtilizationRates(device_t device, utilization_t *rates) {
    ENTER("util", 0);
    rates->gpu = (unsigned int)get(gpu, "util", 57);
    rates->memory = 20;
    return OK;
}
int nvmlDeviceGetClockInfo(device_t device, unsigned int type, unsigned int *mhz) {
    ENTER("clock", 0);
    long long at = get(gpu, "clock_at_us", -1);
    int later = at >= 0 && (long long)(now_us() - origin_us) >= at;
    *mhz = (unsigned int)(type == 2 ? get(gpu, "memory_mhz", 2619) : get(gpu, later ? "clock_then_mhz" : "sm_mhz", 1980));
    return OK;
}
int nvmlDeviceGetMaxClockInfo(device_t device, unsigned int type, unsigned int *mhz) {
    ENTER("clock_max", 0);
    *mhz = (unsigned int)(type == 2 ? 2619 : get(gpu, "sm_max_mhz", 1980));
    return OK;
}
int nvmlDeviceGetApplicationsClock(device_t device, unsigned int type, unsigned int *mhz) {
    ENTER("app_clock", 0);
    *mhz = (unsigned int)(type == 2 ? 2619 : get(gpu, "app_mhz", 1980));
    return OK;
}
int nvmlDeviceGetDefaultApplicationsClock(device_t device, unsigned int type, unsigned int *mhz) {
    ENTER("app_clock_default", 0);
    *mhz = (unsigned int)(type == 2 ? 2619 : get(gpu, "app_default_mhz", 1980));
    return OK;
}
int nvmlDeviceGetTemperature(device_t device, unsigned int sensor, unsigned int *celsius) {
    (void)sensor;
    ENTER("temperature", 0);
    *celsius = (unsigned int)get(gpu, "celsius", 41);
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t device, unsigned long long *reasons) {
    ENTER("throttle", 0);
    *reasons = (unsigned long long)get(gpu, "throttle", 0);
    return OK;
}
int nvmlDeviceGetPcieThroughput(device_t device, unsigned int counter, unsigned int *kb) {
    ENTER("pcie_throughput", 20000);
    *kb = (unsigned int)get(gpu, "pcie_kb", 5000) * (counter == 0 ? 1u : 2u);
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned int *count, process_t *processes) {
    ENTER("processes", 0);
    char list[160] = "";
    pthread_mutex_lock(&state_lock);
    const char *found = text_of(gpu, "pids");
    if (found) snprintf(list, sizeof list, "%s", found);
    pthread_mutex_unlock(&state_lock);
    unsigned int n = 0, room = *count;
    for (char *rest = list, *pid; (pid = strsep(&rest, ",")) != NULL;) {
        if (!*pid) continue;
        if (processes && n < room) {
            memset(&processes[n], 0, sizeof *processes);
            processes[n].pid = (unsigned int)strtoul(pid, NULL, 10);
            processes[n].used = (unsigned long long)get(gpu, "memory_of_pids", 0);
        }
        n++;
    }
    *count = n;
    return processes == NULL && n > 0 ? INSUFFICIENT_SIZE : (n > room ? INSUFFICIENT_SIZE : OK);
}

#ifndef WITHOUT_FIELD_VALUES
static int field_error(int gpu, const char *field) {
    char key[48];
    snprintf(key, sizeof key, "error.%s", field);
    return (int)get(gpu, key, OK);
}
int nvmlDeviceGetFieldValues(device_t device, int count, field_value_t *values) {
    ENTER("field_values", 0);
    for (int i = 0; i < count; i++) {
        field_value_t *v = &values[i];
        memset(&v->value, 0, sizeof v->value);
        v->type = 1; /* unsigned int */
        switch (v->field) {
        case 186:
            v->value.ui = power_mw(gpu, "power_instant_mw", 300000);
            v->result = (uint32_t)(silent(gpu) ? UNKNOWN : field_error(gpu, "power_instant"));
            break;
        case 185:
            v->value.ui = power_mw(gpu, "power_average_mw", 310000);
            v->result = (uint32_t)(silent(gpu) ? UNKNOWN : field_error(gpu, "power_average"));
            break;
        case 83:
            v->type = 3; /* unsigned long long */
            v->value.ull = energy_mj(gpu);
            v->result = (uint32_t)(silent(gpu) ? UNKNOWN : field_error(gpu, "energy"));
            break;
        case 3:
        case 4:
            v->type = 3;
            v->value.ull = (unsigned long long)get(gpu, v->field == 3 ? "ecc_corrected" : "ecc_uncorrected", 0);
            v->result = (uint32_t)field_error(gpu, "ecc");
            break;
        case 138:
        case 139:
            v->type = 3;
            v->value.ull = (unsigned long long)get(gpu, "nvlink_kib", 1000) * (v->field == 138 ? 1u : 2u);
            v->result = (uint32_t)(v->scope == 0xFFFFFFFFu ? field_error(gpu, "nvlink") : INVALID_ARGUMENT);
            break;
        default:
            v->result = NOT_SUPPORTED;
        }
        /* A field that fails leaves no value behind, as the real library does. */
        if (v->result != OK) memset(&v->value, 0, sizeof v->value);
    }
    return OK;
}
#endif
