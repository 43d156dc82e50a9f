%% @doc A rule of the doctor: what it looks for in the facts of a node, and what it reports.
-module(weir_scope_rule).

-export([apply/2]).

-export_type([rule/0, need/0, severity/0, verdict/0, finding/0]).

-type severity() :: note | warning | critical.

-type verdict() :: ok | {severity(), Seen :: iodata()}.

%% The name of a fact, or of a counter whose change over time is a fact.
-type need() :: atom() | {over, atom()}.

%% `needs' names the facts without which the rule cannot be applied. `check' gets all facts.
-type rule() :: #{
    name := atom(),
    needs := [need()],
    check := fun((weir_scope_facts:facts()) -> verdict()),
    why := string(),
    advice := string(),
    sure := high | medium | low,
    link := string()
}.

-type finding() :: #{
    rule := atom(),
    severity := severity(),
    seen := binary(),
    why := binary(),
    advice := binary(),
    sure := high | medium | low,
    link := binary()
}.
%% What was seen, why it matters, what to set, how sure the rule is that it does harm, and where to read on.

%% @doc Applies a rule. Returns `ok', a finding, or the facts that are missing for a verdict.
-spec apply(rule(), weir_scope_facts:facts()) -> ok | {found, finding()} | {unknown, [need()]}.
apply(#{name := Name, needs := Needs, check := Check} = Rule, Facts) ->
    case [Need || Need <- Needs, not is_known(Need, Facts)] of
        [] ->
            case Check(Facts) of
                ok ->
                    ok;
                {Severity, Seen} ->
                    {found, (texts(Rule))#{
                        rule => Name, severity => Severity, seen => unicode:characters_to_binary(Seen)
                    }}
            end;
        Missing ->
            {unknown, Missing}
    end.

is_known({over, Key}, #{over := Over}) -> is_map_key(Key, Over);
is_known(Key, Facts) -> is_map_key(Key, Facts).

texts(#{why := Why, advice := Advice, sure := Sure, link := Link}) ->
    #{
        why => unicode:characters_to_binary(Why),
        advice => unicode:characters_to_binary(Advice),
        sure => Sure,
        link => list_to_binary(Link)
    }.
