%% The world of a program: see weir_parallel.
-define(WORLD, {var, world}).
