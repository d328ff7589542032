/* Loads the plugin as NCCL does, without NCCL, and checks what NCCL relies on before any traffic.
 *
 *   dlopen LIBRARY tables     both tables: name, functions that must be there, functions that must not
 *   dlopen LIBRARY devices    init, and every field of every device's properties, in both versions
 *   dlopen LIBRARY init       both inits: result, and each line of the log with its level
 *
 * Answers on stdout and exit 0, or what is wrong on stderr and exit 1. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { SUCCESS = 0, INVALID_USAGE = 5, WARN = 2, POISON = 0xAA };
enum { NAME = 0, INIT = 1, DEVICES = 2, GET_PROPERTIES = 3, FINALIZE = 20 };

struct field {
    const char *name;
    size_t offset, bytes;
};

struct version {
    const char *symbol;
    size_t slots;
    const int *nulls; /* slots that must be NULL, closed by 0: slot 0 is the name */
    const struct field *fields;
    size_t field_count, properties_bytes;
};

static const int nulls_v8[] = {8, 17, 18, 0};
static const int nulls_v11[] = {8, 17, 18, 19, 21, 0};
static const struct field fields_v8[] = {
    {"name", 0, 8}, {"pciPath", 8, 8}, {"guid", 16, 8}, {"ptrSupport", 24, 4}, {"regIsGlobal", 28, 4}, {"speed", 32, 4},
    {"port", 36, 4}, {"latency", 40, 4}, {"maxComms", 44, 4}, {"maxRecvs", 48, 4}, {"netDeviceType", 52, 4},
    {"netDeviceVersion", 56, 4},
};
static const struct field fields_v11[] = {
    {"name", 0, 8}, {"pciPath", 8, 8}, {"guid", 16, 8}, {"ptrSupport", 24, 4}, {"regIsGlobal", 28, 4},
    {"forceFlush", 32, 4}, {"speed", 36, 4}, {"port", 40, 4}, {"latency", 44, 4}, {"maxComms", 48, 4},
    {"maxRecvs", 52, 4}, {"netDeviceType", 56, 4}, {"netDeviceVersion", 60, 4}, {"ndevs", 64, 4}, {"devs[0]", 68, 4},
    {"devs[1]", 72, 4}, {"devs[2]", 76, 4}, {"devs[3]", 80, 4}, {"maxP2pBytes", 88, 8}, {"maxCollBytes", 96, 8},
    {"maxMultiRequestSize", 104, 4},
};
static const struct version v8 = {"ncclNetPlugin_v8", 19, nulls_v8, fields_v8, COUNT(fields_v8), 64};
static const struct version v11 = {"ncclNetPlugin_v11", 22, nulls_v11, fields_v11, COUNT(fields_v11), 112};

typedef void (*logger_t)(int, unsigned long, const char *, int, const char *, ...);

static int show_log, warnings;
static char last_warning[1024];

static void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
    char text[sizeof last_warning];
    va_list values;
    (void)flags, (void)file, (void)line;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (show_log) printf("level %d: %s\n", level, text);
    if (level != WARN) return;
    warnings++;
    memcpy(last_warning, text, sizeof text);
}

static void fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fprintf(stderr, "\nlast warning: %s\n", last_warning);
    exit(1);
}

static void check_table(void **table, const struct version *version) {
    const int *null = version->nulls;
    if (strcmp(table[NAME], "busbw")) fail("%s: the name is %s", version->symbol, (const char *)table[NAME]);
    for (size_t slot = 1; slot < version->slots; slot++) {
        int must_be_null = *null == (int)slot;
        if (must_be_null) null++;
        if (must_be_null && table[slot]) fail("%s: function %zu is not NULL", version->symbol, slot);
        if (!must_be_null && !table[slot]) fail("%s: function %zu is NULL", version->symbol, slot);
    }
}

static int init_v8(void **table) {
    return ((int (*)(logger_t))table[INIT])(logger);
}

static int init_v11(void **table, void **context) {
    int traffic_class = -1;
    return ((int (*)(void **, uint64_t, int *, logger_t, void *))table[INIT])(context, 42, &traffic_class, logger, NULL);
}

static int get_properties(void **table, int device, unsigned char *props) {
    return ((int (*)(int, void *))table[GET_PROPERTIES])(device, props);
}

static void check_properties(void **table, const struct version *version, int device) {
    unsigned char props[256], poison[8];
    const char *name;
    memset(props, POISON, sizeof props);
    memset(poison, POISON, sizeof poison);
    if (get_properties(table, device, props)) fail("%s: getProperties of device %d", version->symbol, device);
    for (size_t i = 0; i < version->field_count; i++) {
        const struct field *field = &version->fields[i];
        int32_t value;
        memcpy(&value, props + field->offset, sizeof value);
        if (!memcmp(props + field->offset, poison, field->bytes))
            fail("%s: %s of device %d is not set", version->symbol, field->name, device);
        if (!strcmp(field->name, "speed") && value <= 0) fail("%s: device %d has the speed %d", version->symbol, device, value);
    }
    for (size_t i = version->properties_bytes; i < sizeof props; i++)
        if (props[i] != POISON) fail("%s: byte %zu, behind the structure, is written", version->symbol, i);
    memcpy(&name, props, sizeof name);
    if (!*name) fail("%s: device %d has an empty name", version->symbol, device);
}

static int check_devices(void **table, const struct version *version) {
    unsigned char props[256];
    int found = 0, before = warnings;
    if (((int (*)(int *))table[DEVICES])(&found) || found <= 0) fail("%s: %d devices", version->symbol, found);
    for (int device = 0; device < found; device++) check_properties(table, version, device);
    if (warnings != before) fail("%s: a warning where nothing is wrong", version->symbol);
    if (get_properties(table, found, props) != INVALID_USAGE) fail("%s: a device too many is none", version->symbol);
    if (get_properties(table, -1, props) != INVALID_USAGE) fail("%s: device -1 is none", version->symbol);
    if (warnings != before + 2) fail("%s: %d warnings for two wrong devices", version->symbol, warnings - before);
    if (strncmp(last_warning, "busbw: no device -1", 19)) fail("%s: the warning does not say what is wrong", version->symbol);
    return found;
}

static void use(void **old, void **new) {
    int (*finalize)(void *) = (int (*)(void *))new[FINALIZE];
    void *contexts[2] = {NULL, NULL};
    int found;
    if (init_v8(old)) fail("%s: init", v8.symbol);
    found = check_devices(old, &v8);
    for (size_t comm = 0; comm < COUNT(contexts); comm++)
        if (init_v11(new, &contexts[comm]) || !contexts[comm]) fail("%s: init of communicator %zu", v11.symbol, comm);
    if (finalize(contexts[0])) fail("%s: finalize", v11.symbol);
    if (check_devices(new, &v11) != found) fail("the versions count devices differently");
    if (finalize(contexts[1])) fail("%s: finalize of the last communicator", v11.symbol);
    printf("%d devices with all properties in both versions\n", found);
}

int main(int argc, char **argv) {
    void *library, *context, **old, **new;
    if (argc != 3) fail("usage: dlopen LIBRARY tables|devices|init");
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fail("%s", dlerror());
    old = dlsym(library, v8.symbol);
    new = dlsym(library, v11.symbol);
    if (!old || !new) fail("%s", dlerror());
    if (!strcmp(argv[2], "devices")) {
        use(old, new);
    } else if (!strcmp(argv[2], "init")) {
        show_log = 1;
        printf("v8: %d\n", init_v8(old));
        printf("v11: %d\n", init_v11(new, &context));
    } else {
        check_table(old, &v8);
        check_table(new, &v11);
        printf("%s and %s: busbw, %zu and %zu entries\n", v8.symbol, v11.symbol, v8.slots, v11.slots);
    }
    /* Threads of the transport may outlive the last communicator, with which NCCL closes the library. */
    dlclose(library);
    if (!dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD)) fail("dlclose unloads the library: it is not linked with -z nodelete");
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library || dlsym(library, v8.symbol) != old || dlsym(library, v11.symbol) != new) fail("opened again, it has other tables");
    return 0;
}
