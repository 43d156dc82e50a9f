%% @private
%% @doc Asks a node that has nothing of ours, through a process there that evaluates what every OTP has: its flags stay while it
%% lives, and it ends with the process for which it was made.
-module(weir_scope_afar).

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

%% @doc A fun like `erlang:apply/3', for as long as the calling process lives. It raises `{erpc, noconnection}' or `{erpc, timeout}', as erpc does, where
%% the node is gone, or does not answer for so many milliseconds.
-spec ask({node(), Patience :: pos_integer()}) -> weir_scope_facts:ask().
ask({Node, Patience}) ->
    asks(resident(Node, Patience), Patience).

%% @doc Calls a fun with one that is not there any more afterwards.
-spec run({node(), Patience :: pos_integer()}, fun((weir_scope_facts:ask()) -> Result)) -> Result.
run({Node, Patience}, Fun) ->
    Resident = resident(Node, Patience),
    try
        Fun(asks(Resident, Patience))
    after
        Resident ! enough
    end.

resident(Node, Patience) ->
    %% Raises where it cannot be reached: a spawn there would write a warning instead.
    Node = erpc:call(Node, erlang, node, [], Patience),
    {ok, Tokens, _} = erl_scan:string(?ANSWERS),
    {ok, Expressions} = erl_parse:parse_exprs(Tokens),
    erlang:spawn(Node, erl_eval, exprs, [Expressions, [{'Observer', self()}]]).

asks(Resident, Patience) ->
    fun(Module, Function, Arguments) -> asked(Resident, Module, Function, Arguments, Patience) end.

asked(Resident, Module, Function, Arguments, Patience) ->
    %% An answer that comes too late is dropped.
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
