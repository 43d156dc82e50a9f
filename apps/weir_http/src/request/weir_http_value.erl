%% @private
%% @doc The syntax of field values (RFC 9110, 5.6): white space, case, parameters. These functions accept any bytes;
%% those of `string' would fail for invalid UTF-8.
-module(weir_http_value).

-export([trim/1]).
-export([lower/1]).
-export([parameters/1]).

%% @doc Removes white space at both ends.
-spec trim(binary()) -> binary().
trim(<<Space, Rest/binary>>) when Space =:= $\s; Space =:= $\t -> trim(Rest);
trim(Text) -> trim_end(Text, byte_size(Text)).

trim_end(Text, Length) when Length > 0 ->
    case binary:at(Text, Length - 1) of
        Space when Space =:= $\s; Space =:= $\t -> trim_end(Text, Length - 1);
        _ -> binary:part(Text, 0, Length)
    end;
trim_end(_Text, 0) ->
    <<>>.

%% @doc Converts the ASCII letters to lower case.
-spec lower(binary()) -> binary().
lower(Text) -> << <<(lower_byte(Byte))>> || <<Byte>> <= Text >>.

lower_byte(Byte) when Byte >= $A, Byte =< $Z -> Byte + 32;
lower_byte(Byte) -> Byte.

%% @doc Returns the text before the first semicolon, in lower case, and the parameters after it in their order: names
%% in lower case, values without their quotes. Malformed parameters are left out.
-spec parameters(binary()) -> {Value :: binary(), [{Name :: binary(), Value :: binary()}]}.
parameters(Text) ->
    case binary:split(Text, <<";">>) of
        [Value] -> {lower(trim(Value)), []};
        [Value, Rest] -> {lower(trim(Value)), parameter(Rest)}
    end.

parameter(Text) ->
    case name(trim(Text), <<>>) of
        {Name, <<$", Rest/binary>>} -> quoted(Rest, Name, <<>>);
        {Name, Rest} -> plain(binary:split(Rest, <<";">>), Name);
        none -> next(Text)
    end.

name(<<$=, Rest/binary>>, Name) when Name =/= <<>> -> {lower(trim(Name)), Rest};
name(<<Byte, Rest/binary>>, Name) when Byte =/= $;, Byte =/= $=, Byte =/= $" -> name(Rest, <<Name/binary, Byte>>);
name(_Text, _Name) -> none.

plain([Value | Rest], Name) -> [{Name, trim(Value)} | lists:append([parameter(More) || More <- Rest])].

%% Browsers do not escape the backslashes in a file name.
quoted(<<$\\, Byte, Rest/binary>>, Name, Value) when Byte =:= $"; Byte =:= $\\ ->
    quoted(Rest, Name, <<Value/binary, Byte>>);
quoted(<<$", Rest/binary>>, Name, Value) ->
    [{Name, Value} | next(Rest)];
quoted(<<Byte, Rest/binary>>, Name, Value) ->
    quoted(Rest, Name, <<Value/binary, Byte>>);
quoted(<<>>, _Name, _Value) ->
    [].

next(Text) ->
    case binary:split(Text, <<";">>) of
        [_, Rest] -> parameter(Rest);
        [_] -> []
    end.
