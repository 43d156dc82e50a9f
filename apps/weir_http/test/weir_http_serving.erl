%% The process handler of the tests: its state is a fun that does what the case is about.
-module(weir_http_serving).
-behaviour(weir_http_process).

-export([serve/2]).

serve(Request, Fun) -> Fun(Request).
