%% The probes of Http11Probe (MDA2AV/Http11Probe, MIT): responses of a server to valid, odd and invalid requests. The
%% names, levels and expected answers are theirs; the requests were rewritten.
%%
%% A probe is `{Name, Level, Bytes, Expected}'. Expected are alternatives: a status, `ok' (2xx), `close' (the
%% connection is closed without a response), `silence' (neither), `{ok, closed}' (one response with 2xx, and the
%% connection is closed), or a fun of the observation. Alternatives after `warn' are accepted with a warning.
-module(weir_http_probes).

-export([all/0, verdict/2, answer/1]).

all() ->
    weir_http_probes_compliance:all() ++ weir_http_probes_malformed:all() ++ weir_http_probes_smuggling:all().

%% Returns pass, warn or fail.
verdict({_Name, _Level, _Bytes, Expected}, Observed) ->
    {Pass, Warn} =
        case lists:splitwith(fun(Answer) -> Answer =/= warn end, Expected) of
            {All, []} -> {All, []};
            {Good, [warn | Bad]} -> {Good, Bad}
        end,
    case {is_one_of(Pass, Observed), is_one_of(Warn, Observed)} of
        {true, _} -> pass;
        {false, true} -> warn;
        {false, false} -> fail
    end.

is_one_of(Answers, Observed) ->
    lists:any(fun(Answer) -> is_it(Answer, Observed) end, Answers).

is_it(ok, #{statuses := [Status | _]}) -> Status >= 200 andalso Status < 300;
is_it({ok, closed}, #{statuses := [Status], connection := closed}) -> Status >= 200 andalso Status < 300;
is_it(close, #{statuses := [], connection := closed}) -> true;
is_it(silence, #{statuses := [], connection := open}) -> true;
is_it(Status, #{statuses := [Status | _]}) when is_integer(Status) -> true;
is_it(Check, Observed) when is_function(Check) -> Check(Observed);
is_it(_Other, _Observed) -> false.

%% Formats an observation for the table.
answer(#{statuses := Statuses, connection := Connection}) ->
    lists:flatten(lists:join(", ", [integer_to_list(Status) || Status <- Statuses] ++ [atom_to_list(Connection)])).
