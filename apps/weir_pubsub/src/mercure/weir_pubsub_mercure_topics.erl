%% @private
%% @doc Selectors of topics, as in Mercure 0.x: `*' for all, a topic, or a URI template (RFC 6570, with all operators
%% and modifiers).
%%
%% A template matches a topic that it can be expanded to. Text that is not a template is a topic, and matches only
%% itself. So does a template with more than 16 variables: clients choose the selectors, and each update is compared
%% with all of them.
-module(weir_pubsub_mercure_topics).

-export([new/1]).
-export([fits/2]).

-export_type([selector/0]).

-type selector() :: all | {topic, binary()} | {template, Whole :: binary(), [part()]}.

-type part() ::
    {text, binary()}
    %% Characters of a value: at most `Most', each unreserved, percent-encoded, or one of the bytes `Also'.
    | {value, Also :: binary(), Most :: pos_integer() | infinity}
    | {optional, [part()]}
    %% Any variable may have no value. `First' is before the first that has one, `Separator' before each later one.
    | {expression, First :: binary(), Separator :: binary(), [variable(), ...]}.

-type variable() :: {once | many, [part()]}.

-define(MOST_VARIABLES, 16).

-define(RESERVED, <<":/?#[]@!$&'()*+,;=">>).

%% @doc Parses a selector.
-spec new(binary()) -> selector().
new(<<"*">>) ->
    all;
new(Text) ->
    case parts(Text) of
        {ok, [{text, Text}]} -> {topic, Text};
        {ok, Parts} ->
            case lists:sum([length(Variables) || {expression, _, _, Variables} <- Parts]) =< ?MOST_VARIABLES of
                true -> {template, Text, Parts};
                false -> {topic, Text}
            end;
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

expression(<<$+, Names/binary>>) -> expression(<<>>, <<",">>, fun reserved/3, Names);
expression(<<$#, Names/binary>>) -> expression(<<"#">>, <<",">>, fun reserved/3, Names);
expression(<<$., Names/binary>>) -> expression(<<".">>, <<".">>, fun value/3, Names);
expression(<<$/, Names/binary>>) -> expression(<<"/">>, <<"/">>, fun value/3, Names);
expression(<<$;, Names/binary>>) -> expression(<<";">>, <<";">>, fun parameter/3, Names);
expression(<<$?, Names/binary>>) -> expression(<<"?">>, <<"&">>, fun pair/3, Names);
expression(<<$&, Names/binary>>) -> expression(<<"&">>, <<"&">>, fun pair/3, Names);
expression(Names) -> expression(<<>>, <<",">>, fun value/3, Names).

expression(First, Separator, Parts, Names) ->
    Variables = [variable(Name, Parts) || Name <- binary:split(Names, <<",">>, [global])],
    case lists:member(error, Variables) of
        true -> error;
        false -> {ok, {expression, First, Separator, Variables}}
    end.

%% `name', `name:3', `name*'.
variable(Text, Parts) ->
    Character = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+",
    Pattern = ["^(", Character, "(?:\\.", Character, ")*)(?::([1-9][0-9]{0,3})|(\\*))?$"],
    case re:run(Text, Pattern, [dollar_endonly, {capture, all_but_first, binary}]) of
        {match, [Name]} -> {once, Parts(Name, once, infinity)};
        {match, [Name, Most]} -> {once, Parts(Name, once, binary_to_integer(Most))};
        {match, [Name, <<>>, <<"*">>]} -> {many, Parts(Name, many, infinity)};
        nomatch -> error
    end.

%% A list is joined by commas. If it is exploded, each of its members is a value, or a name and a value.
value(_Name, many, Most) -> [{value, <<"=">>, Most}];
value(_Name, once, infinity) -> [{value, <<",">>, infinity}];
value(_Name, once, Most) -> [{value, <<>>, Most}].

reserved(_Name, _Times, Most) -> [{value, ?RESERVED, Most}].

%% An empty value has no `=' either.
parameter(_Name, many, Most) -> [{value, <<"=">>, Most}];
parameter(Name, once, Most) -> [{text, Name}, {optional, [{text, <<"=">>} | value(Name, once, Most)]}].

pair(_Name, many, _Most) -> [{value, <<>>, infinity}, {text, <<"=">>}, {value, <<>>, infinity}];
pair(Name, once, Most) -> [{text, <<Name/binary, "=">>} | value(Name, once, Most)].

%% @doc Whether a selector matches a topic. The time is at most in proportion to the product of their lengths.
-spec fits(binary(), selector()) -> boolean().
fits(_Topic, all) -> true;
fits(Topic, {topic, Text}) -> Topic =:= Text;
fits(Topic, {template, Whole, _Parts}) when Topic =:= Whole -> true;
fits(Topic, {template, _Whole, Parts}) -> lists:member(byte_size(Topic), ends(Parts, [0], Topic)).

%% Offsets where the parts can end if they begin at one of these offsets, which are in order. Each offset is continued
%% from once, so a template with many ways to match takes no longer.
ends(_Parts, [], _Topic) -> [];
ends([Part | Parts], Offsets, Topic) -> ends(Parts, part(Part, Offsets, Topic), Topic);
ends([], Offsets, _Topic) -> Offsets.

part({text, Text}, Offsets, Topic) ->
    [Offset + byte_size(Text) || Offset <- Offsets, is_at(Text, Offset, Topic)];
part({value, Also, Most}, Offsets, Topic) ->
    value_ends([{Offset, Most} || Offset <- Offsets], Also, Topic);
part({optional, Parts}, Offsets, Topic) ->
    ordsets:union(Offsets, ends(Parts, Offsets, Topic));
part({expression, First, Separator, Variables}, Offsets, Topic) ->
    Some = lists:foldl(
        fun({Times, Parts}, Before) ->
            Begins = ordsets:union(part({text, First}, Offsets, Topic), part({text, Separator}, Before, Topic)),
            Once = ends(Parts, Begins, Topic),
            ordsets:union(
                Before,
                case Times of
                    once -> Once;
                    many -> again([{text, Separator} | Parts], Once, Once, Topic)
                end
            )
        end,
        [],
        Variables
    ),
    ordsets:union(Offsets, Some).

again(Parts, Latest, All, Topic) ->
    case ordsets:subtract(ends(Parts, Latest, Topic), All) of
        [] -> All;
        New -> again(Parts, New, ordsets:union(All, New), Topic)
    end.

is_at(Text, Offset, Topic) ->
    Size = byte_size(Text),
    case Topic of
        <<_:Offset/binary, Text:Size/binary, _/binary>> -> true;
        _ -> false
    end.

%% Each offset has the number of characters that may follow. If two ways lead to one offset, the one that leaves more
%% counts.
value_ends([{Offset, One}, {Offset, Other} | Offsets], Also, Topic) ->
    value_ends([{Offset, max(One, Other)} | Offsets], Also, Topic);
value_ends([{Offset, Left} | Offsets], Also, Topic) ->
    case character(Offset, Also, Topic) of
        {Size, Count} when Count =< Left ->
            [Offset | value_ends(insert(Offset + Size, less(Left, Count), Offsets), Also, Topic)];
        _ ->
            [Offset | value_ends(Offsets, Also, Topic)]
    end;
value_ends([], _Also, _Topic) ->
    [].

less(infinity, _Count) -> infinity;
less(Left, Count) -> Left - Count.

insert(Offset, Left, [{Earlier, _} = First | Offsets]) when Earlier < Offset -> [First | insert(Offset, Left, Offsets)];
insert(Offset, Left, Offsets) -> [{Offset, Left} | Offsets].

%% The size of a character, and how much it counts. A character of several bytes is encoded as several triplets, of
%% which the first counts.
character(Offset, Also, Topic) ->
    case Topic of
        <<_:Offset/binary, $%, High, Low, _/binary>> ->
            case is_hexadecimal(High) andalso is_hexadecimal(Low) of
                true -> {3, case binary_to_integer(<<High, Low>>, 16) band 2#11000000 of 2#10000000 -> 0; _ -> 1 end};
                false -> none
            end;
        <<_:Offset/binary, Byte, _/binary>> ->
            case is_unreserved(Byte) orelse binary:match(Also, <<Byte>>) =/= nomatch of
                true -> {1, 1};
                false -> none
            end;
        _ ->
            none
    end.

is_hexadecimal(Byte) ->
    (Byte >= $0 andalso Byte =< $9) orelse (Byte >= $a andalso Byte =< $f) orelse (Byte >= $A andalso Byte =< $F).

is_unreserved(Byte) when Byte >= $a, Byte =< $z; Byte >= $A, Byte =< $Z; Byte >= $0, Byte =< $9 -> true;
is_unreserved(Byte) -> Byte =:= $- orelse Byte =:= $. orelse Byte =:= $_ orelse Byte =:= $~.
