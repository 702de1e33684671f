/* shoal-sim cluster: simulated clusters (cluster_world.h) for as long as one likes. */
#ifndef SIM_CLUSTER_CLI_H
#define SIM_CLUSTER_CLI_H

/* argv[0] is the name of the command. Returns the exit status: 0 every world held, 1 a checker
 * failed, 2 wrong usage. */
int sh_cluster_cli(int argc, char **argv);

#endif
