"""Reading what others wrote: tables, framework logs and traces, each as it is, with the line it stood on."""
