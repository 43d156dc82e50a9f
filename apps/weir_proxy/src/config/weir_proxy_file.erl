%% @doc The configuration of a proxy in a TOML file. Names and values are those of the map, see
%% {@link weir_proxy_config}.
-module(weir_proxy_file).

-export([read/1]).
-export([start/2]).
-export([take_over/2]).
-export([reload/1]).
-export([explain/1]).

-export_type([fault/0]).

-type fault() :: {file, file:filename_all(), Line :: pos_integer() | none, Text :: iodata()}.
%% The file, the line, and what is wrong there.

%% @doc Reads a file and checks it as a whole.
-spec read(file:filename_all()) -> {ok, Given :: map()} | {error, fault()}.
read(File) ->
    with_given(File, fun(Given) ->
        case weir_proxy_config:new(Given) of
            {ok, _} -> {ok, Given};
            {error, _} = Error -> Error
        end
    end).

%% Calls Take with the contents of the file. Take checks them; its error gets a line number here.
with_given(File, Take) ->
    case file:read_file(File) of
        {ok, Text} ->
            case weir_toml:decode(Text) of
                {ok, Given} ->
                    located(Take(Given), File, Text);
                {error, {line, Line, Why}} ->
                    {error, {file, File, Line, Why}};
                {error, {too_large, Most}} ->
                    {error, {file, File, none, io_lib:format("the file is larger than ~b bytes", [Most])}}
            end;
        {error, Reason} ->
            {error, {file, File, none, file:format_error(Reason)}}
    end.

located({error, Bad = {bad_option, Path, _, _}}, File, Text) -> {error, {file, File, line(Text, Path), explain(Bad)}};
located(Result, _File, _Text) -> Result.

line(Text, Path) ->
    weir_toml:line(Text, [case is_atom(Step) of true -> atom_to_binary(Step); false -> Step end || Step <- Path]).

%% @doc Starts a proxy from a file. {@link reload/1} reads it again.
-spec start(weir_proxy:name(), file:filename_all()) -> ok | {error, fault() | weir_proxy:error()}.
start(Name, File) -> start(Name, File, fun weir_proxy:start/2).

%% @doc Starts a proxy from a file with {@link weir_proxy:take_over/2}.
-spec take_over(weir_proxy:name(), file:filename_all()) -> ok | {error, fault() | weir_proxy:error()}.
take_over(Name, File) -> start(Name, File, fun weir_proxy:take_over/2).

start(Name, File, Start) ->
    case with_given(File, fun(Given) -> Start(Name, Given) end) of
        ok -> weir_proxy_store:save({file, Name}, filename:absname(File));
        {error, _} = Error -> Error
    end.

%% @doc Reads the file of a proxy again and changes the proxy. If the file is wrong, returns an error and changes
%% nothing.
-spec reload(weir_proxy:name()) -> ok | {error, no_file | fault() | weir_proxy:error()}.
reload(Name) ->
    case weir_proxy_store:saved({file, Name}) of
        %% The proxy's process reads the file, so that concurrent reloads cannot apply an older text after a newer one.
        {ok, File} ->
            weir_proxy_store:call(Name, {change, fun() -> with_given(File, fun weir_proxy_config:new/1) end});
        none ->
            {error, no_file}
    end.

%% @doc Returns one line that explains an error.
-spec explain(fault() | weir_proxy:error() | no_file) -> iodata().
explain({file, File, none, Text}) ->
    [File, ": ", Text];
explain({file, File, Line, Text}) ->
    [File, $:, integer_to_list(Line), ": ", Text];
explain({bad_option, Path, undefined, Allowed}) ->
    [path(Path), ": ", Allowed];
explain({bad_option, Path, Value, Allowed}) ->
    [path(Path), " is ", value(Value), "; allowed: ", Allowed];
explain({listen, Address, Reason}) when is_atom(Reason) ->
    ["cannot listen on ", Address, ": ", inet:format_error(Reason)];
explain({listen, Address, Reason}) ->
    ["cannot listen on ", Address, io_lib:format(": ~0tp", [Reason])];
explain({log, Where, timeout}) ->
    ["cannot write the log ", Where, ": timed out"];
explain({log, Where, Reason}) ->
    ["cannot write the log ", Where, ": ", file:format_error(Reason)];
explain({take_over, Path, Reason}) ->
    ["cannot take over from the proxy at ", Path, ": ", value(Reason)];
explain({no_server, Name}) ->
    ["no such server: ", Name];
explain({no_backend, Name}) ->
    ["no such backend: ", Name];
explain(no_file) ->
    "the proxy was not started from a file";
explain(Reason) ->
    io_lib:format("~0tp", [Reason]).

path([]) -> "the configuration";
path(Path) -> lists:join($., [step(Step) || Step <- Path]).

step(Step) when is_integer(Step) -> integer_to_list(Step);
step(Step) when is_atom(Step) -> atom_to_list(Step);
step(Step) -> Step.

value(Value) when is_binary(Value) -> [$", Value, $"];
%% JSON is nearly the notation of the file.
value(Value) when is_map(Value); is_list(Value), not is_integer(hd(Value)) ->
    try
        weir_json:compact(Value)
    catch
        error:_ -> io_lib:format("~0tp", [Value])
    end;
value(Value) -> io_lib:format("~0tp", [Value]).
