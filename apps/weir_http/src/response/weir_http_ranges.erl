%% @private
%% @doc The field Range: the parts of a file that a client asks for (RFC 9110, 14).
-module(weir_http_ranges).

-export([parse/2]).

-export_type([range/0]).

-type range() :: {First :: non_neg_integer(), Last :: non_neg_integer()}.

%% Most ranges in a request. Only attackers send more, and no client needs overlapping ranges.
-define(MOST, 16).

%% @doc Returns the parts, in the order requested. `whole': the field is malformed, has more than 16 ranges, or
%% ranges that overlap. `unsatisfiable': no range is within the file.
-spec parse(binary() | undefined, Size :: non_neg_integer()) -> whole | unsatisfiable | {parts, [range(), ...]}.
parse(<<Unit:5/binary, "=", Text/binary>>, Size) ->
    Specs = binary:split(Text, <<",">>, [global]),
    case weir_http_value:lower(Unit) of
        <<"bytes">> when length(Specs) =< ?MOST -> parts(Specs, Size, []);
        _ -> whole
    end;
parse(_Field, _Size) ->
    whole.

parts([Spec | Specs], Size, Parts) ->
    case part(binary:split(weir_http_value:trim(Spec), <<"-">>), Size) of
        {_, _} = Part -> parts(Specs, Size, [Part | Parts]);
        outside -> parts(Specs, Size, Parts);
        wrong -> whole
    end;
parts([], _Size, []) ->
    unsatisfiable;
parts([], _Size, Parts) ->
    case overlap(lists:sort(Parts)) of
        true -> whole;
        false -> {parts, lists:reverse(Parts)}
    end.

part([<<>>, Suffix], Size) ->
    case number(Suffix) of
        wrong -> wrong;
        Length when Length > 0, Size > 0 -> {max(0, Size - Length), Size - 1};
        _ -> outside
    end;
part([From, <<>>], Size) ->
    from(number(From), Size - 1, Size);
part([From, To], Size) ->
    from(number(From), number(To), Size);
part(_, _Size) ->
    wrong.

from(wrong, _Last, _Size) -> wrong;
from(_First, wrong, _Size) -> wrong;
from(First, _Last, Size) when First >= Size -> outside;
from(First, Last, _Size) when Last < First -> wrong;
from(First, Last, Size) -> {First, min(Last, Size - 1)}.

%% No file has a size of 19 digits.
number(Digits) when byte_size(Digits) >= 1, byte_size(Digits) =< 18 ->
    case << <<D>> || <<D>> <= Digits, D >= $0, D =< $9 >> of
        Digits -> binary_to_integer(Digits);
        _ -> wrong
    end;
number(_) ->
    wrong.

overlap([{_, Last}, {First, _} = Next | Parts]) -> First =< Last orelse overlap([Next | Parts]);
overlap(_) -> false.
