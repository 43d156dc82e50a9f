%% @private
%% @doc Selectors of topics, as Mercure 0.x has them: `*' for all, a topic, or a URI template (RFC 6570).
%%
%% A template fits a topic that it could have been expanded to. Expressions with the operators `;', `?' and `&' are not known: a
%% selector with one of them is a topic, and no more.
-module(weir_pubsub_mercure_topics).

-export([new/1]).
-export([fits/2]).

-export_type([selector/0]).

-type selector() :: all | {topic, binary()} | {template, Whole :: binary(), [part()]}.

-type part() :: {text, binary()} | {some, First :: binary(), Class :: unreserved | reserved, Also :: byte() | none}.

%% @doc A selector out of its text.
-spec new(binary()) -> selector().
new(<<"*">>) ->
    all;
new(Text) ->
    case parts(Text) of
        {ok, [{text, Text}]} -> {topic, Text};
        {ok, Parts} -> {template, Text, Parts};
        error -> {topic, Text}
    end.

parts(Text) ->
    case binary:split(Text, <<"{">>) of
        [Literal] ->
            case binary:match(Literal, <<"}">>) of
                nomatch -> {ok, literal(Literal)};
                _ -> error
            end;
        [Literal, Rest] ->
            case {binary:match(Literal, <<"}">>), binary:split(Rest, <<"}">>)} of
                {nomatch, [Expression, Later]} -> followed(Literal, expression(Expression), parts(Later));
                _ -> error
            end
    end.

followed(Literal, {ok, Part}, {ok, Parts}) -> {ok, literal(Literal) ++ [Part | Parts]};
followed(_Literal, _Part, _Parts) -> error.

literal(<<>>) -> [];
literal(Literal) -> [{text, Literal}].

expression(<<Operator, Names/binary>>) when Operator =:= $+; Operator =:= $#; Operator =:= $.; Operator =:= $/ ->
    case is_names(Names) of
        true -> {ok, some(Operator)};
        false -> error
    end;
expression(Names) ->
    case is_names(Names) of
        true -> {ok, {some, <<>>, unreserved, none}};
        false -> error
    end.

some($+) -> {some, <<>>, reserved, none};
some($#) -> {some, <<"#">>, reserved, none};
some($.) -> {some, <<".">>, unreserved, none};
some($/) -> {some, <<"/">>, unreserved, $/}.

%% `name', `name:3', `name*', with commas between them.
is_names(Names) -> re:run(Names, "^[A-Za-z0-9_.%]+(:[0-9]{1,4}|\\*)?(,[A-Za-z0-9_.%]+(:[0-9]{1,4}|\\*)?)*$", [{capture, none}]) =:= match.

%% @doc Whether a selector fits a topic. Takes time in proportion to the product of their lengths at most.
-spec fits(binary(), selector()) -> boolean().
fits(_Topic, all) -> true;
fits(Topic, {topic, Text}) -> Topic =:= Text;
fits(Topic, {template, Whole, _Parts}) when Topic =:= Whole -> true;
fits(Topic, {template, _Whole, Parts}) -> lists:member(byte_size(Topic), ends(Parts, [0], Topic)).

%% Where the parts can end that begin at one of these offsets, which are in order.
ends([], Offsets, _Topic) ->
    Offsets;
ends(_Parts, [], _Topic) ->
    [];
ends([{text, Text} | Parts], Offsets, Topic) ->
    ends(Parts, [Offset + byte_size(Text) || Offset <- Offsets, is_at(Text, Offset, Topic)], Topic);
ends([{some, First, Class, Also} | Parts], Offsets, Topic) ->
    Begins = [Offset + byte_size(First) || Offset <- Offsets, is_at(First, Offset, Topic)],
    %% A name that has no value leaves nothing.
    ends(Parts, ordsets:union(Offsets, runs(Begins, -1, Class, Also, Topic)), Topic).

is_at(Text, Offset, Topic) ->
    Size = byte_size(Text),
    case Topic of
        <<_:Offset/binary, Text:Size/binary, _/binary>> -> true;
        _ -> false
    end.

%% From each beginning on as far as the class goes; what an earlier one has reached is not gone over again.
runs([Begin | Begins], Reached, Class, Also, Topic) when Begin =< Reached ->
    runs(Begins, Reached, Class, Also, Topic);
runs([Begin | Begins], _Reached, Class, Also, Topic) ->
    End = run(Begin, Class, Also, Topic),
    lists:seq(Begin, End) ++ runs(Begins, End, Class, Also, Topic);
runs([], _Reached, _Class, _Also, _Topic) ->
    [].

run(Offset, Class, Also, Topic) when Offset < byte_size(Topic) ->
    Byte = binary:at(Topic, Offset),
    case Byte =:= Also orelse is_in(Byte, Class) of
        true -> run(Offset + 1, Class, Also, Topic);
        false -> Offset
    end;
run(Offset, _Class, _Also, _Topic) ->
    Offset.

%% Commas stand between the values of a list; what else is reserved is written with `%'.
is_in(Byte, _Class) when Byte >= $a, Byte =< $z; Byte >= $A, Byte =< $Z; Byte >= $0, Byte =< $9 -> true;
is_in(Byte, _Class) when Byte =:= $-; Byte =:= $.; Byte =:= $_; Byte =:= $~; Byte =:= $%; Byte =:= $, -> true;
is_in(Byte, reserved) -> binary:match(<<":/?#[]@!$&'()*+;=">>, <<Byte>>) =/= nomatch;
is_in(_Byte, unreserved) -> false.
