%% @private
%% @doc Calls functions on a node where no module of Weir is loaded. A process there runs in `erl_eval', which every
%% OTP has. Flags that it sets last while it lives. It ends with the process that it was made for.
-module(weir_scope_remote).

-export([ask/1]).
-export([run/2]).

-define(ANSWERS, "
    Monitor = erlang:monitor(process, Observer),
    Answers = fun Answers() ->
        receive
            {ask, Alias, Module, Function, Arguments} ->
                Answer = try {ok, erlang:apply(Module, Function, Arguments)} catch Class:Reason -> {Class, Reason} end,
                erlang:send(Alias, {Alias, Answer}, [noconnect]),
                Answers();
            {'DOWN', Monitor, process, _, _} ->
                ok;
            enough ->
                ok
        end
    end,
    Answers().
").

%% @doc Returns a fun like `erlang:apply/3' that calls the node, while the calling process lives. It raises `{erpc,
%% noconnection}' if the node is gone, and `{erpc, timeout}' if it does not answer within `Patience' milliseconds, as
%% erpc does.
-spec ask({node(), Patience :: pos_integer()}) -> weir_scope_facts:ask().
ask({Node, Patience}) ->
    asks(resident(Node, Patience), Patience).

%% @doc Calls `Fun' with a fun like that of {@link ask/1}, which is only valid during the call.
-spec run({node(), Patience :: pos_integer()}, fun((weir_scope_facts:ask()) -> Result)) -> Result.
run({Node, Patience}, Fun) ->
    Resident = resident(Node, Patience),
    try
        Fun(asks(Resident, Patience))
    after
        Resident ! enough
    end.

resident(Node, Patience) ->
    %% Raises if the node cannot be reached; a spawn would log a warning instead.
    Node = erpc:call(Node, erlang, node, [], Patience),
    {ok, Tokens, _} = erl_scan:string(?ANSWERS),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    erlang:spawn(Node, erl_eval, exprs, [Expressions, [{'Observer', self()}]]).

asks(Resident, Patience) ->
    fun(Module, Function, Arguments) -> asked(Resident, Module, Function, Arguments, Patience) end.

asked(Resident, Module, Function, Arguments, Patience) ->
    %% With the alias an answer that comes too late is dropped.
    Tag = monitor(process, Resident, [{alias, reply_demonitor}]),
    Resident ! {ask, Tag, Module, Function, Arguments},
    receive
        {Tag, Answer} ->
            answer(Answer);
        {'DOWN', Tag, process, _, _} ->
            error({erpc, noconnection})
    after Patience ->
        true = demonitor(Tag, [flush]),
        error({erpc, timeout})
    end.

answer({ok, Value}) -> Value;
answer({error, Reason}) -> error(Reason);
answer({exit, Reason}) -> exit(Reason);
answer({throw, Reason}) -> throw(Reason).
