%% @doc A server's configuration file, which can be rewritten while the server runs.
-module(weir_bench_configuration).

-export([write/2]).
-export([keep/3]).
-export([delete/1]).

-export_type([configuration/0, text/0]).

-opaque configuration() :: {file:filename(), text()}.

%% Returns the text after a number of changes.
-type text() :: fun((Changes :: non_neg_integer()) -> iodata()).

%% @doc Writes the initial configuration to a file. The name only has to be unique in this process.
-spec write(Name :: iodata(), text()) -> {file:filename(), configuration()}.
write(Name, Text) ->
    File = weir_bench_tree:scratch(Name),
    ok = file:write_file(File, Text(0)),
    {File, {File, Text}}.

%% @doc Adds the configuration to a server, with a function that writes a change and sends the signal. Change 0 is the
%% initial text.
-spec keep(configuration(), Signal :: string(), weir_bench_server:server()) -> weir_bench_server:server().
keep({File, Text}, Signal, #{pid := Pid} = Server) ->
    Change = fun(Number) ->
        ok = weir_bench_tree:replace(File, iolist_to_binary(Text(Number))),
        %% A failure of kill is ignored: if the server has ended, its load fails and reports it.
        _ = os:cmd("kill -s " ++ signal(Signal, Number) ++ " " ++ Pid),
        ok
    end,
    Server#{file => File, change => Change}.

%% Signal 0 only checks that the process exists: see kill(2).
signal(_Signal, 0) -> "0";
signal(Signal, _Number) -> Signal.

%% @doc Deletes the file, after the server has ended or failed to start.
-spec delete(file:filename() | configuration()) -> ok.
delete({File, _Text}) -> delete(File);
delete(File) -> ok = file:delete(File).
