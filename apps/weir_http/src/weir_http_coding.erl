%% @private
%% @doc The field Accept-Encoding: which codings of a content a client takes (RFC 9110, 12.5.3).
-module(weir_http_coding).

-export([accepted/2]).

%% Codings that are looked at: there are less than ten, and thousands would take milliseconds.
-define(MOST, 32).

%% @doc Those of the given codings that the client takes: first what it prefers, then in the order given.
-spec accepted(binary() | undefined, Offered :: [binary()]) -> [Coding :: binary()].
accepted(undefined, _Offered) ->
    [];
accepted(Field, Offered) ->
    Weights = maps:from_list([weight(binary:split(Text, <<";">>)) || Text <- lists:sublist(binary:split(Field, <<",">>, [global]), ?MOST)]),
    Others = maps:get(<<"*">>, Weights, 0),
    Weighed = [{-Weight, Coding} || Coding <- Offered, Weight <- [maps:get(Coding, Weights, Others)], Weight > 0],
    [Coding || {_, Coding} <- lists:keysort(1, Weighed)].

%% In thousandths. What is wrong with a weight is not worth a refusal: the content as it is is always right.
weight([Coding]) ->
    {name(Coding), 1000};
weight([Coding, Weight]) ->
    case re:run(Weight, "^\\s*q\\s*=\\s*(?:(1)(?:\\.0*)?|0?(?:\\.(\\d{1,3})\\d*)?)\\s*$", [caseless, {capture, all_but_first, binary}]) of
        {match, [<<"1">>]} -> {name(Coding), 1000};
        {match, [<<>>, Digits]} -> {name(Coding), binary_to_integer(<<Digits/binary, (binary:copy(<<"0">>, 3 - byte_size(Digits)))/binary>>)};
        _ -> {name(Coding), 0}
    end.

name(Coding) -> weir_http_value:lower(weir_http_value:trim(Coding)).
