/* The functions of CUDA's driver that the nccl engine calls, for a machine without a GPU. Those of a timed loop are noted in order, with
 * their arguments; fake_log() returns the notes. fake_fail_at(N) lets the Nth noted call from now on fail with 3. Streams are idle at once,
 * after fake_hang(1) never. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *handle;

static char log_text[1 << 20];
static size_t log_end;
static int fail_at, stream_count, event_count, hangs;

const char *fake_log(void) { return log_text; }
void fake_clear(void) { log_text[log_end = 0] = 0; }
void fake_fail_at(int number) { fail_at = number; }
void fake_hang(int on) { hangs = on; }

int fake_note(const char *format, ...) {
  va_list values;
  va_start(values, format);
  size_t room = sizeof log_text - log_end;
  int length = vsnprintf(log_text + log_end, room, format, values);
  va_end(values);
  if (length < 0 || (size_t)length + 1 >= room) abort();
  log_end += length;
  log_text[log_end++] = '\n';
  log_text[log_end] = 0;
  return fail_at && --fail_at == 0 ? 3 : 0;
}

int cuInit(unsigned flags) { return (void)flags, 0; }
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuDeviceGetCount(int *count) { return *count = 4, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDevicePrimaryCtxRetain(handle *context, int device) { return *context = (handle)(0xC000L + device), 0; }
int cuDeviceGetName(char *name, int room, int device) { return snprintf(name, room, "Fake %d", device), 0; }
int cuDeviceTotalMem_v2(size_t *size, int device) { return (void)device, *size = 1UL << 34, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { return (void)attribute, *value = device + 1, 0; }
int cuMemGetInfo_v2(size_t *left, size_t *total) { return *left = *total = 1UL << 34, 0; }
int cuMemAlloc_v2(uintptr_t *address, size_t size) { return *address = (uintptr_t)malloc(size), 0; }
int cuMemFree_v2(uintptr_t address) { return free((void *)address), 0; }
int cuMemHostAlloc(void **address, size_t size, unsigned flags) { return (void)flags, *address = malloc(size), 0; }
int cuMemFreeHost(void *address) { return free(address), 0; }
int cuMemHostGetDevicePointer_v2(uintptr_t *pointer, void *address, unsigned flags) {
  return (void)flags, *pointer = (uintptr_t)address, 0;
}
int cuStreamCreate(handle *stream, unsigned flags) { return (void)flags, *stream = (handle)(0x5000L + ++stream_count), 0; }
int cuStreamDestroy_v2(handle stream) { return (void)stream, 0; }
int cuStreamWaitValue32_v2(handle stream, uintptr_t address, uint32_t value, unsigned flags) {
  return (void)address, (void)value, (void)flags, fake_note("cuStreamWaitValue32(%p)", stream);
}
int cuEventCreate(handle *event, unsigned flags) { return (void)flags, *event = (handle)(0xE000L + ++event_count), 0; }
int cuEventDestroy_v2(handle event) { return (void)event, 0; }
int cuEventElapsedTime(float *ms, handle first, handle last) { return *ms = (char *)last - (char *)first, 0; }
int cuEventElapsedTime_v2(float *ms, handle first, handle last) { return cuEventElapsedTime(ms, first, last); }
int cuGetErrorString(int status, const char **text) { return *text = status ? "fake failure" : "none", 0; }

int cuCtxSetCurrent(handle context) { return fake_note("cuCtxSetCurrent(%p)", context); }
int cuEventRecord(handle event, handle stream) { return fake_note("cuEventRecord(%p, %p)", event, stream); }
int cuStreamQuery(handle stream) { return hangs ? 600 : fake_note("cuStreamQuery(%p)", stream); }
int cuMemcpyDtoDAsync_v2(uintptr_t target, uintptr_t source, size_t size, handle stream) {
  return fake_note("cuMemcpyDtoDAsync(%#lx, %#lx, %zu, %p)", target, source, size, stream);
}

/* As the driver does: the newest version of a function. */
int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *status) {
  char newest[200];
  (void)version, (void)flags;
  snprintf(newest, sizeof newest, "%s_v2", name);
  *address = dlsym(RTLD_DEFAULT, strcmp(name, "cuEventElapsedTime") ? newest : name);
  if (!*address) *address = dlsym(RTLD_DEFAULT, name);
  if (status) *status = *address ? 0 : 1;
  return *address ? 0 : 500;
}
