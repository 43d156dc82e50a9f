%% @private
%% @doc A cache of open files. A file is kept for a second after it was opened, so that popular files are sent without
%% access to the disk. Then it is opened again: a replaced or deleted file is served for at most that second.
%%
%% An entry contains what clients can get under a name: the file itself, and compressed variants beside it. Reactors
%% only look files up ({@link find/1}); processes open them ({@link open/1}), since that may wait for a disk.
-module(weir_http_open_files).
-behaviour(gen_server).

-export([start_link/0]).
-export([find/1]).
-export([open/1]).

-export([init/1]).
-export([handle_call/3]).
-export([handle_cast/2]).
-export([handle_info/2]).

-export_type([name/0, opened/0, variant/0]).

-include("weir_http_files.hrl").

-type name() :: binary() | #below{}.
%% The path of a file as bytes for the system, or names below a directory.

-type opened() :: [variant(), ...].
%% The original comes last.

-type variant() :: #variant{}.

%% Milliseconds for which an opened file is served under its name.
-define(KEPT_MS, 1000).

%% Names in the cache. Each has up to three descriptors. Further files are opened for each request.
-define(MOST, 256).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Returns what was opened under a name within the last second.
-spec find(name()) -> {ok, opened()} | none.
find(Name) ->
    try ets:lookup(?MODULE, Name) of
        [{_, Until, Opened}] ->
            case erlang:monotonic_time(millisecond) < Until of
                true -> {ok, Opened};
                false -> none
            end;
        [] ->
            none
    catch
        %% The application is stopping.
        error:badarg -> none
    end.

%% @doc Opens the file of a name and its compressed variants, unless they are cached. May wait for a disk.
-spec open(name()) -> {ok, opened()} | {error, weir_file:reason()}.
open(Name) ->
    case find(Name) of
        {ok, _} = Found -> Found;
        none -> kept(Name, open(Name, <<>>, identity))
    end.

kept(Name, {ok, File}) ->
    Codings = [{<<"br">>, <<".br">>}, {<<"gzip">>, <<".gz">>}],
    Opened = [Variant || {Coding, Ending} <- Codings, {ok, Variant} <- [open(Name, Ending, Coding)]] ++ [File],
    ok = gen_server:cast(?MODULE, {keep, Name, Opened}),
    {ok, Opened};
kept(_Name, {error, _} = Error) ->
    Error.

open(Name, Ending, Coding) ->
    case opened(Name, Ending) of
        {ok, File, #{size := Size, modified_ns := Ns}} ->
            {ok, variant(File, Size, Ns div 1000000000, Coding, media_type(Name))};
        {error, _} = Error ->
            Error
    end.

opened(#below{root = Root, names = Names, links = refuse}, Ending) ->
    weir_file:open(Root, lists:droplast(Names) ++ [<<(lists:last(Names))/binary, Ending/binary>>]);
opened(#below{root = Root, names = Names, links = follow}, Ending) ->
    weir_file:open(<<(filename:join([Root | Names]))/binary, Ending/binary>>);
opened(Path, Ending) ->
    weir_file:open(<<Path/binary, Ending/binary>>).

variant(File, Size, Modified, Coding, Type) ->
    Tag = tag(Size, Modified, Coding),
    #variant{
        file = File,
        size = Size,
        modified = Modified,
        tag = Tag,
        coding = Coding,
        type = Type,
        validators = [
            {<<"etag">>, Tag},
            %% Last-Modified may not be in the future.
            {<<"last-modified">>, weir_http_nif:format_date(max(0, min(Modified, os:system_time(second))))},
            {<<"vary">>, <<"accept-encoding">>}
        ]
    }.

%% Modified has a resolution of seconds: a file that changes twice within a second and keeps its size keeps its tag.
tag(Size, Modified, Coding) ->
    iolist_to_binary([$", integer_to_binary(Modified, 16), $-, integer_to_binary(Size, 16), suffix(Coding), $"]).

suffix(identity) -> <<>>;
suffix(Coding) -> [$-, Coding].

media_type(#below{names = Names}) ->
    media_type(lists:last(Names));
media_type(Path) ->
    Known =
        case filename:extension(Path) of
            <<".", Extension/binary>> -> weir_http_nif:media_type(Extension);
            _ -> undefined
        end,
    case Known of
        undefined -> <<"application/octet-stream">>;
        <<"text/", _/binary>> -> <<Known/binary, "; charset=utf-8">>;
        _ -> Known
    end.

%%% The process.

-spec init([]) -> {ok, []}.
init([]) ->
    _ = ets:new(?MODULE, [named_table, protected, {read_concurrency, true}]),
    {ok, []}.

-spec handle_call(term(), gen_server:from(), []) -> {reply, {error, badarg}, []}.
handle_call(_Request, _From, State) -> {reply, {error, badarg}, State}.

-spec handle_cast({keep, name(), opened()}, []) -> {noreply, [], hibernate}.
handle_cast({keep, Name, Opened}, State) ->
    Count = ets:info(?MODULE, size),
    _ = Count < ?MOST andalso ets:insert(?MODULE, {Name, erlang:monotonic_time(millisecond) + ?KEPT_MS, Opened}),
    _ = Count =:= 0 andalso erlang:send_after(?KEPT_MS, self(), sweep),
    {noreply, State, hibernate}.

-spec handle_info(term(), []) -> {noreply, [], hibernate}.
handle_info(sweep, State) ->
    Now = erlang:monotonic_time(millisecond),
    _ = ets:select_delete(?MODULE, [{{'_', '$1', '_'}, [{'=<', '$1', Now}], [true]}]),
    _ = ets:info(?MODULE, size) > 0 andalso erlang:send_after(?KEPT_MS, self(), sweep),
    %% Garbage messages would keep files open.
    {noreply, State, hibernate};
handle_info(_Message, State) ->
    {noreply, State, hibernate}.
