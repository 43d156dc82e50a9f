%% @private
%% @doc The field Accept-Encoding: the content codings that a client accepts (RFC 9110, 12.5.3).
-module(weir_http_coding).

-export([accepted/2]).

%% Codings that are parsed. Fewer than ten exist; thousands would take milliseconds.
-define(MOST, 32).

%% @doc Returns the offered codings that the client accepts: by its preference, then in the order offered.
-spec accepted(binary() | undefined, Offered :: [binary()]) -> [Coding :: binary()].
accepted(undefined, _Offered) ->
    [];
accepted(Field, Offered) ->
    Weights = maps:from_list([
        weight(binary:split(Text, <<";">>))
     || Text <- lists:sublist(binary:split(Field, <<",">>, [global]), ?MOST)
    ]),
    Others = maps:get(<<"*">>, Weights, 0),
    Weighed = [{-Weight, Coding} || Coding <- Offered, Weight <- [maps:get(Coding, Weights, Others)], Weight > 0],
    [Coding || {_, Coding} <- lists:keysort(1, Weighed)].

%% Weights in thousandths. A malformed weight excludes its coding instead of failing: the unencoded content is always
%% acceptable.
weight([Coding]) ->
    {name(Coding), 1000};
weight([Coding, Weight]) ->
    case
        re:run(Weight, "^\\s*q\\s*=\\s*(?:(1)(?:\\.0*)?|0?(?:\\.(\\d{1,3})\\d*)?)\\s*$", [
            caseless, {capture, all_but_first, binary}
        ])
    of
        {match, [<<"1">>]} ->
            {name(Coding), 1000};
        {match, [<<>>, Digits]} ->
            {name(Coding), binary_to_integer(<<Digits/binary, (binary:copy(<<"0">>, 3 - byte_size(Digits)))/binary>>)};
        _ ->
            {name(Coding), 0}
    end.

name(Coding) -> weir_http_value:lower(weir_http_value:trim(Coding)).
