%% @doc Watches for long turns and long garbage collections, which hold a scheduler up.
%%
%% The VM reports them to a system monitor. From OTP 28 on there can be several, each in its own session. Before OTP 28
%% a node has only one: it is used for the time of the measurement if it is free, and left alone otherwise.
-module(weir_scope_long).

-export([has_sessions/0]).
-export([watch/1]).

-export_type([long/0, turn/0]).

-type turn() :: #{
    kind := long_schedule | long_gc,
    milliseconds := non_neg_integer(),
    who := pid() | port(),
    name => atom() | mfa(),
    label => term(),
    in => mfa() | undefined,
    out => mfa() | undefined
}.
%% `name': the registered name, or the initial function of the process. `in' and `out': its function at the beginning
%% and the end of the turn.

-type long() :: {ok, [turn()]} | {error, {system_monitor, pid() | port()}}.
%% The longest first, 100 at most. The error names the process that is the node's only system monitor.

%% Milliseconds from which on a turn or collection is long. The VM aims at turns of about a millisecond.
-define(LONG, 20).

%% Further ones are ignored.
-define(MOST, 1000).

-define(SHOWN, 100).

%% @doc Returns whether this node can have several system monitors.
-spec has_sessions() -> boolean().
has_sessions() ->
    _ = code:ensure_loaded(trace),
    erlang:function_exported(trace, system, 3).

%% @private
%% @doc Collects long turns until the calling process gets the message `enough'. Calls `Ready' when it has begun. The
%% process must get no other messages of these forms.
-spec watch(fun(() -> term())) -> long().
watch(Ready) ->
    case begin_watch() of
        {ok, End} ->
            _ = Ready(),
            Turns = listen([], 0),
            ok = End(),
            Longest = fun(#{milliseconds := One}, #{milliseconds := Other}) -> One >= Other end,
            {ok, lists:sublist(lists:sort(Longest, Turns), ?SHOWN)};
        {error, _} = Error ->
            _ = Ready(),
            Error
    end.

begin_watch() ->
    case has_sessions() of
        true ->
            Session = apply(trace, session_create, [weir_scope_long, self(), []]),
            lists:foreach(fun(Kind) -> ok = apply(trace, system, [Session, Kind, ?LONG]) end, [long_gc, long_schedule]),
            {ok, fun() -> _ = apply(trace, session_destroy, [Session]), ok end};
        false ->
            take(erlang:system_monitor())
    end.

take(undefined) ->
    case erlang:system_monitor(self(), [{long_gc, ?LONG}, {long_schedule, ?LONG}]) of
        undefined -> {ok, fun give_back/0};
        %% Another process was faster: give it back.
        {Other, _} = Before -> _ = erlang:system_monitor(Before), {error, {system_monitor, Other}}
    end;
take({Other, _}) ->
    {error, {system_monitor, Other}}.

%% Another process may have taken it in the meantime.
give_back() ->
    Self = self(),
    case erlang:system_monitor() of
        {Self, _} -> _ = erlang:system_monitor(undefined), ok;
        _ -> ok
    end.

listen(Turns, ?MOST) ->
    receive
        enough -> Turns
    end;
listen(Turns, Count) ->
    receive
        {monitor, Who, Kind, Info} when Kind =:= long_gc; Kind =:= long_schedule ->
            listen([turn(Who, Kind, Info) | Turns], Count + 1);
        enough ->
            Turns
    end.

turn(Who, Kind, Info) ->
    Turn = maps:merge(
        #{kind => Kind, milliseconds => proplists:get_value(timeout, Info, 0), who => Who}, described(Who)
    ),
    maps:merge(Turn, maps:with([in, out], maps:from_list([Item || {_, _} = Item <- Info]))).

described(Port) when is_port(Port) ->
    #{};
described(Pid) ->
    case weir_scope_process:name(fun erlang:apply/3, Pid) of
        gone -> #{};
        Named -> Named
    end.
