%% What a program works on, see weir_parallel.
-define(WORLD, {var, world}).
