%% @doc A server's configuration in a file of its own, which may be written again while the server runs.
-module(weir_bench_configuration).

-export([write/2]).
-export([keep/3]).
-export([delete/1]).

-export_type([configuration/0, text/0]).

-opaque configuration() :: {file:filename(), text()}.

%% The text by the number of changes that were made to it.
-type text() :: fun((Changes :: non_neg_integer()) -> iodata()).

%% @doc Writes it as it is at first. The name is that of the file, as far as this process has others.
-spec write(Name :: iodata(), text()) -> {file:filename(), configuration()}.
write(Name, Text) ->
    File = weir_bench_tree:scratch(Name),
    ok = file:write_file(File, Text(0)),
    {File, {File, Text}}.

%% @doc The server with its configuration, which it is told of with a signal; of none that is as at first.
-spec keep(configuration(), Signal :: string(), weir_bench_server:server()) -> weir_bench_server:server().
keep({File, Text}, Signal, #{pid := Pid} = Server) ->
    Change = fun(Number) ->
        ok = weir_bench_tree:replace(File, iolist_to_binary(Text(Number))),
        %% One that has ended is told of where its load fails.
        _ = os:cmd("kill -s " ++ signal(Signal, Number) ++ " " ++ Pid),
        ok
    end,
    Server#{file => File, change => Change}.

%% 0 only looks whether the process is there: see kill(2).
signal(_Signal, 0) -> "0";
signal(Signal, _Number) -> Signal.

%% @doc The server is gone, or did not come.
-spec delete(file:filename() | configuration()) -> ok.
delete({File, _Text}) -> delete(File);
delete(File) -> ok = file:delete(File).
