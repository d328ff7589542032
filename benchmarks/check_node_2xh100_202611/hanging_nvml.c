#include <unistd.h>
int nvmlInitWithFlags(unsigned f){for(;;)pause();}
